r"""Turns text into datasets: token ids in shards, and a manifest each.

Inputs are .txt, .jsonl, .jsonl.gz or .jsonl.zst, here or on a bucket. Killed
at any instant, the same command goes on.

  leviathan prepare --input='text/**/*.jsonl.zst' --workers=16 \
      --tokenizer=spm:tokenizer/tokenizer.model --output=data

On several machines that share a disk, each runs its --shard=i/n of the reading,
i from 0 to n - 1, and then one of them runs the command without --shard.
"""

from collections.abc import Iterator
from collections.abc import Sequence
import contextlib
import re
import sys
import threading

from absl import flags
from etils import epath
import tqdm

from leviathan import errors
from leviathan.cli import text_flags
from leviathan.data import files
from leviathan.data import job as job_lib
from leviathan.data import manifest as manifest_lib
from leviathan.data import prepare
from leviathan.data import records
from leviathan.data import text
from leviathan.data import tokenizer as tokenizers
from leviathan.data import units
from leviathan.token_order import files as token_orders

_SEQ_LEN = flags.DEFINE_integer('seq_len', 512, 'Tokens of a sequence.')
_VALIDATION_FRACTION = flags.DEFINE_float(
  'validation_fraction',
  0.0,
  'Share of the documents that goes to OUTPUT/validation, the rest to '
  'OUTPUT/train; with 0 there is one dataset, OUTPUT itself.',
)
_SPLIT_BY = flags.DEFINE_string(
  'split_by',
  '',
  'Key by whose value the documents are split into one dataset each, as '
  'meta.pile_set_name; the value names the directory, with odd characters '
  'written as in a URL.',
)
_SHUFFLE_SEED = flags.DEFINE_integer(
  'shuffle_seed', 0, 'Of the order that rows are stored in.', lower_bound=0
)
_SHUFFLE = flags.DEFINE_bool(
  'shuffle', True, 'Store the rows shuffled; else in the order of the inputs.'
)
_WORKERS = flags.DEFINE_integer(
  'workers', 1, 'Processes on this machine.', lower_bound=1
)
_SHARD = flags.DEFINE_string(
  'shard', None, 'i/n: do the i-th of n parts of the reading, and stop.'
)
_TOKEN_ORDER = flags.DEFINE_enum(
  'token_order',
  None,
  token_orders.METHODS,
  'Also order the tokens by this method, from all but OUTPUT/validation, into '
  'OUTPUT/token_order.npy; see `leviathan order --help`.',
)
_MAX_BAD_RECORDS = flags.DEFINE_integer(
  'max_bad_records',
  0,
  'Records that cannot be read, at most; they are left out, counted in the '
  'manifests and listed in OUTPUT/bad_records.jsonl.',
  lower_bound=0,
)


def main(argv: Sequence[str]) -> None:
  """Writes the datasets and prints a line for each."""
  del argv
  job = job_of_flags()
  most, workers, part = _MAX_BAD_RECORDS.value, _WORKERS.value, _SHARD.value
  if part is not None:
    share, shares = shard(part)
    job_lib.start(job)
    with _progress(job):
      prepare.run_tokenize(job, workers, most, share, shares)
    print(
      f'shard {part} is done; when all are, run the command without --shard'
    )
    return
  if done := units.progress(job):
    print(f'going on: about {done / 1e6:,.0f} MB are done', file=sys.stderr)
  with _progress(job):
    manifests = prepare.run(job, workers, most, _order_tokens)
  for path, manifest in manifests.items():
    print(_line(path, manifest))
  print(_totals(next(iter(manifests.values()))))
  if job.validation_fraction:
    held_out = job.output / 'validation'
    validation = [p for p in manifests if held_out in (p, *p.parents)]
    train = [p for p in manifests if p not in validation]
    shared = records.shared_texts(train, validation)
    print(f'texts that are in both train and validation: {shared:,}')


def _order_tokens(output: epath.Path, datasets: Sequence[str]) -> None:
  """Writes the order that is asked for, from all that is not held out."""
  if _TOKEN_ORDER.value is None:
    return
  # Here, since scipy takes as long to load as all else.
  from leviathan.token_order import methods

  held_out = 'validation' if _VALIDATION_FRACTION.value else None
  train = [name for name in datasets if name.split('/')[0] != held_out]
  found = [records.open_dataset(output / name) for name in train]
  tokens = sum(dataset.manifest.tokens for dataset in found)
  with tqdm.tqdm(total=tokens, unit=' tokens', disable=None) as bar:
    order = methods.make(found, _TOKEN_ORDER.value, tick=bar.update)
  token_orders.save(order, output / 'token_order.npy')
  print(f'tokens ordered by {_TOKEN_ORDER.value}, sha256 {order.sha256[:12]}')


def job_of_flags() -> job_lib.Job:
  """The job that the flags describe.

  Raises:
    ConfigError: a value is out of range.
    DataError: an input or the tokenizer cannot be used.
  """
  output, spec = text_flags.OUTPUT.value, text_flags.TOKENIZER.value
  if output is None or spec is None:
    raise errors.ConfigError('give --output=... and --tokenizer=...')
  if '://' in output:
    raise errors.ConfigError(
      f'--output={output} is in a bucket, where shards cannot be written; give '
      'a directory on a disk or a mount'
    )
  inputs = files.expand(text_flags.INPUT.value)
  tokenizer = tokenizers.load_once(spec)
  lost = tokenizers.lossless_problem(tokenizer)
  if lost and not text_flags.ALLOW_LOSSY.value:
    raise errors.DataError(
      f'tokenizer={spec!r} is lossy: {lost}; `leviathan tokenizer --check` '
      'measures how much of your text that is, --allow_lossy takes it'
    )
  return job_lib.Job(
    output=epath.Path(output).expanduser().absolute(),
    inputs=tuple(
      manifest_lib.Input(name=name, bytes=files.size(name)) for name in inputs
    ),
    tokenizer=spec,
    tokenizer_sha256=tokenizer.sha256,
    format=text.Format(
      text_key=text_flags.TEXT_KEY.value,
      split_by=_SPLIT_BY.value,
      max_record_bytes=text_flags.MAX_RECORD_BYTES.value,
    ),
    seq_len=_SEQ_LEN.value,
    validation_fraction=_VALIDATION_FRACTION.value,
    shuffle_seed=_SHUFFLE_SEED.value if _SHUFFLE.value else None,
  )


def shard(value: str) -> tuple[int, int]:
  """(i, n) of 'i/n'.

  Raises:
    ConfigError: it is not so written, or i is not below n.
  """
  found = re.fullmatch(r'(\d+)/(\d+)', value)
  if not found or not int(found[1]) < int(found[2]):
    raise errors.ConfigError(
      f'--shard={value} is not i/n with i from 0 to n - 1'
    )
  return int(found[1]), int(found[2])


@contextlib.contextmanager
def _progress(job: job_lib.Job) -> Iterator[None]:
  """A bar in bytes of text, of what all processes have done, on a terminal."""
  with tqdm.tqdm(unit='B', unit_scale=True, disable=None) as bar:
    over = threading.Event()

    def watch():
      while not bar.disable and not over.wait(1):
        bar.n = units.progress(job)
        bar.refresh()

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
      yield
    finally:
      over.set()
      thread.join()


def _line(path: epath.Path, manifest: manifest_lib.Manifest) -> str:
  """What is in a dataset."""
  return (
    f'{manifest.sequences:,} sequences, {manifest.tokens:,} tokens, '
    f'{manifest.bytes / manifest.tokens:.2f} bytes per token, '
    f'{manifest.documents:,} documents ({manifest.duplicates:,} duplicates): '
    f'{path}'
  )


def _totals(manifest: manifest_lib.Manifest) -> str:
  """What became of the records of all inputs; any manifest of a job says it."""
  skipped = ', '.join(f'{n:,} {why}' for why, n in manifest.skipped.items())
  documents = manifest.documents + manifest.elsewhere
  return (
    f'{manifest.records:,} records: {documents:,} documents, '
    f'skipped {skipped or 0}'
  )
