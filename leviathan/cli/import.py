"""Makes a run of a Hugging Face Llama, to evaluate and to train on.

leviathan import --hf=DIR --config=configs/untied.py:smoke --workdir=runs/llama

The config is the one to train with: data made with the Llama's tokenizer, and
its sizes; where they differ, the flags to give are named. With the same flags
`leviathan train` goes on from the imported parameters.
"""

from absl import flags
from etils import epath

from leviathan import errors
from leviathan import experiment
from leviathan import rundir
from leviathan import storage
from leviathan.cli import config_flag
from leviathan.huggingface import import_

HF = flags.DEFINE_string(
  'hf',
  None,
  'Directory with config.json and model.safetensors (or several).',
  required=True,
)
CONFIG = config_flag.define()
WORKDIR = flags.DEFINE_string(
  'workdir', None, 'Directory of the run; it must not exist.', required=True
)


def main(argv) -> None:
  """Runs the command."""
  del argv
  source = epath.Path(HF.value).expanduser()
  if storage.in_bucket(source):
    raise errors.DataError(
      f'--hf={source} is in a bucket; copy it to a disk and give that directory'
    )
  if not source.is_dir():
    raise errors.DataError(
      f'--hf={source} is no directory; give that of a model that was downloaded'
    )
  run = rundir.open_(WORKDIR.value)
  config = experiment.read_config(config_flag.read(CONFIG))
  import_.import_(config, source, run, print)
  print(
    f'written: {run.path}, step 0; `leviathan train` with the same --config '
    'flags and --workdir goes on from it'
  )
