"""What goes to Slurm, run by an `sbatch` that runs it here."""

import json
import os
import pathlib
import subprocess
import sys

from leviathan.data import records

ROOT = pathlib.Path(__file__).parents[2]
# Runs each task of an array in turn, one that is not there once, and says an
# id. A job that depends on another is that other's heir alone.
SBATCH = r"""#!/bin/bash
script=$(cat)
printf '%s\n' "$script" >> "$LOG"
[[ $* == --parsable ]] || exit 1
after=$(sed -n 's/^#SBATCH --dependency=//p' <<< "$script")
[[ -z $after || $after == afterok:17 ]] || { echo no $after >&2; exit 1; }
last=$(sed -n 's/^#SBATCH --array=0-//p' <<< "$script")
for i in $(seq 0 "${last:-0}"); do
  SLURM_ARRAY_TASK_ID=$i bash -c "$script" >> "$LOG" 2>&1 || exit 1
done
echo '17;cluster'
"""


def launch(*arguments, path=os.environ['PATH'], **env):
  """(exit code, stdout, stderr) of the script."""
  process = subprocess.run(
    [sys.executable, ROOT / 'launch' / 'prepare_slurm.py', *arguments],
    capture_output=True,
    text=True,
    cwd=ROOT,
    env=os.environ | {'PATH': path} | env,
  )
  return process.returncode, process.stdout, process.stderr


def given(tiny, tmp_path):
  """Flags, with what a shell would take apart."""
  directory = tmp_path / "it's $HOME"
  directory.mkdir()
  for i in range(2):
    lines = [json.dumps({'text': f'{i} {n}'}) + '\n' for n in range(20)]
    (directory / f'{i} a.jsonl').write_text(''.join(lines))
  return [
    f'--input={directory}/*.jsonl',
    f'--tokenizer=spm:{tiny.tokenizer}',
    f'--output={tmp_path}/the output',
    '--seq_len=8',
    '--noshuffle',
  ]


def fake_sbatch(tmp_path, content=SBATCH):
  """Puts it first in a PATH."""
  program = tmp_path / 'bin' / 'sbatch'
  program.parent.mkdir()
  program.write_text(content)
  program.chmod(0o755)
  return f'{program.parent}:{os.environ["PATH"]}'


def test_a_dry_run_prints_both_scripts_and_makes_nothing(tiny, tmp_path):
  flags = given(tiny, tmp_path)
  code, said, _ = launch(
    *flags, '--dry_run', '--tasks=3', '--cpus_per_task=5', '--partition=cpu',
    '--time=1:00:00', '--mem_per_cpu=3G',
  )  # fmt: skip
  assert code == 0
  assert not (tmp_path / 'the output').exists()
  read, write = said.split('\n# JOB is the id of the above.\n')
  for script in (read, write):
    assert script.startswith('#!/bin/bash\n#SBATCH --')
    for line in (
      '#SBATCH --cpus-per-task=5\n',
      '#SBATCH --partition=cpu\n',
      '#SBATCH --time=1:00:00\n',
      '#SBATCH --mem-per-cpu=3G\n',
      '--workers=5',
      f"'--output={tmp_path}/the output'",
      '--noshuffle',
    ):
      assert line in script
    # Only what was given: the rest is the command's own.
    assert '--text_key' not in script
  assert '#SBATCH --array=0-2\n' in read and 'dependency' not in read
  assert read.endswith('--shard="$SLURM_ARRAY_TASK_ID"/3\n')
  assert '#SBATCH --dependency=afterok:JOB\n' in write
  assert '--array' not in write and '--shard' not in write


def test_a_shell_gives_the_command_what_was_given(tiny, tmp_path):
  flags = given(tiny, tmp_path)
  _, said, _ = launch(*flags, '--dry_run', '--tasks=3')
  read = said.split('\n# JOB')[0].replace(
    f'exec {sys.executable} -m leviathan prepare', "printf '%s\\n'"
  )
  found = subprocess.run(
    ['bash', '-c', read],
    capture_output=True,
    text=True,
    env=os.environ | {'SLURM_ARRAY_TASK_ID': '2'},
  ).stdout.splitlines()
  assert sorted(found) == sorted([*flags, '--workers=16', '--shard=2/3'])


def test_the_jobs_make_the_dataset(tiny, tmp_path):
  flags = given(tiny, tmp_path)
  log = tmp_path / 'log'
  code, said, stderr = launch(
    *flags, '--tasks=2', '--cpus_per_task=1',
    path=fake_sbatch(tmp_path), LOG=str(log), PYTHONPATH=str(ROOT),
  )  # fmt: skip
  assert code == 0, stderr + log.read_text()
  assert said == 'submitted: reading is job 17, writing job 17\n'
  dataset = records.open_dataset(tmp_path / 'the output')
  assert dataset.manifest.documents == 40
  for i in range(2):
    assert f'shard {i}/2 is done' in log.read_text()


def test_refusals_are_one_line(tiny, tmp_path):
  flags = given(tiny, tmp_path)
  refusing = fake_sbatch(
    tmp_path, '#!/bin/bash\necho no such partition >&2\nexit 1\n'
  )
  cases = [
    (2, ['--task=3'], 'did you mean --tasks?'),
    (2, ['--tasks=0'], '--tasks=0'),
    (2, ['--workers=3'], '--workers is set by'),
    (2, ['--shard=0/2'], '--shard is set by'),
    (2, ['--seq_len=0'], 'seq_len=0'),
    (2, ['oops'], "'oops' belongs to no flag"),
    (3, [f'--input={tmp_path}/none*.txt'], 'matches no file'),
    (3, [f'--output={ROOT}'], 'never overwritten'),
  ]
  for code, more, words in cases:
    found, _, stderr = launch(*flags, *more, '--dry_run')
    assert found == code, stderr
    (line,) = stderr.splitlines()
    assert line.startswith('error: ') and words in line
  found, _, stderr = launch(*flags, path=str(tmp_path / 'nowhere'))
  assert found == 2 and 'there is no sbatch here' in stderr
  found, _, stderr = launch(*flags, path=refusing)
  assert found == 2 and stderr.startswith('error: sbatch refuses (no such p')
