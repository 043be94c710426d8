"""What goes to Slurm, run by programs that do here what Slurm's do."""

import json
import os
import signal
import subprocess
import sys

import pytest

TRAIN = (
  '--', 'leviathan', 'train', '--config=configs/lev.py:1p2b',
  '--workdir=/shared/runs/lev',
)  # fmt: skip
WORDS = [
  'a "b" $HOME `c`',
  "it's",
  '$$',
  '',
  'two\nlines',
  'COMMAND',
  '*',
  ';&',
]
SBATCH = """#!/bin/bash
[[ $* == --parsable ]] || exit 1
cat >"$(dirname "$0")/script"
echo '17;cluster'
"""
# Without the flags that are for it; JAX finds the task by these variables.
SRUN = """#!/bin/bash
[[ $1 == --cpus-per-task=8 ]] || exit 1
shift 2
SLURM_PROCID=0 SLURM_LOCALID=0 exec "$@"
"""


@pytest.fixture
def slurm(fakes):
  """Fakes with Slurm's programs."""
  fakes.add('sbatch', SBATCH)
  fakes.add('srun', SRUN)
  fakes.add('scontrol')
  return fakes


def start(fakes, **options):
  """The script that was submitted last, on a node."""
  return subprocess.Popen(
    ['bash', fakes.directory / 'script'],
    env=os.environ
    | {
      'PATH': f'{fakes.directory}:{os.environ["PATH"]}',
      'SLURM_JOB_ID': '17',
      'SLURM_CPUS_PER_TASK': '8',
    },
    **options,
  )


@pytest.mark.parametrize(
  'name, words',
  [
    ('slurm_four_nodes', ('--nodes=4', '--partition=gpu', *TRAIN)),
    ('slurm_one_gpu', ('--gpus=1', '--time=1:00:00', *TRAIN)),
    (
      'slurm_words',
      ('--nodes=2', '--gpus=4', '--cpus_per_task=16', *TRAIN, '--x=a "b" $H'),
    ),
  ],
)
def test_a_dry_run_is_as_it_was(slurm, check_golden, shellcheck, name, words):
  code, said, stderr = slurm.launch('slurm', '--name=lev', '--dry_run', *words)
  assert code == 0, stderr
  check_golden(name, said)
  shellcheck(said)


def test_what_is_submitted_is_what_a_dry_run_says(slurm):
  words = ('--name=lev', '--nodes=2', *TRAIN, *WORDS)
  _, wanted, _ = slurm.launch('slurm', '--dry_run', *words)
  code, said, stderr = slurm.launch('slurm', *words)
  assert code == 0, stderr
  assert (slurm.directory / 'script').read_text() == wanted
  assert 'job 17\n' in said and 'lev-17.log' in said and 'scancel 17' in said


def test_a_task_gets_the_words_and_secrets_as_they_were_given(
  slurm, shellcheck, tmp_path
):
  secrets = tmp_path / "it's secret"
  secrets.write_text('WANDB_API_KEY="a b"\n')
  told = tmp_path / 'told.json'
  program = (
    'import json, os, sys; json.dump([os.environ["WANDB_API_KEY"], '
    '*sys.argv[1:]], open(sys.argv[-1], "w"))'
  )
  code, said, stderr = slurm.launch(
    'slurm', '--name=lev', '--gpus=1', f'--secrets={secrets}', '--',
    sys.executable, '-c', program, *WORDS, str(told),
  )  # fmt: skip
  assert code == 0, stderr
  script = (slurm.directory / 'script').read_text()
  shellcheck(script)
  assert 'a b' not in script
  assert start(slurm).wait(timeout=60) == 0
  assert json.loads(told.read_text()) == ['a b', *WORDS, str(told)]


@pytest.mark.parametrize('ended, again', [(75, True), (0, False), (4, False)])
def test_a_preempted_job_goes_back_into_the_queue(slurm, ended, again):
  slurm.launch(
    'slurm',
    '--name=lev',
    '--gpus=1',
    '--',
    sys.executable,
    '-c',
    f'exit({ended})',
  )
  assert start(slurm).wait(timeout=60) == ended
  wanted = [['scontrol', 'requeue', '17']] if again else []
  assert slurm.calls() == wanted


def test_a_job_that_is_cancelled_saves_and_does_not_come_back(slurm):
  program = (
    'import signal, sys, time; '
    'signal.signal(signal.SIGTERM, lambda *_: sys.exit(75)); '
    'print("up", flush=True); time.sleep(60)'
  )
  slurm.launch(
    'slurm', '--name=lev', '--gpus=1', '--', sys.executable, '-c', program
  )
  process = start(
    slurm, stdout=subprocess.PIPE, text=True, start_new_session=True
  )
  assert process.stdout.readline() == 'up\n'
  os.killpg(process.pid, signal.SIGTERM)  # The script, and its step.
  assert process.wait(timeout=60) == 75
  assert slurm.calls() == []


@pytest.mark.parametrize(
  'words, match',
  [
    (('--name=a b', *TRAIN), '--name=a b'),
    (('--name=a', '--nodes=0', *TRAIN), '--nodes=0'),
    (('--name=a',), 'no command is given'),
    (('--name=a', *TRAIN, '--secret=abc'), '--secrets=FILE'),
  ],
)
def test_refusals_are_one_line(slurm, words, match):
  code, _, stderr = slurm.launch('slurm', '--dry_run', *words)
  assert code == 2
  (line,) = stderr.splitlines()
  assert line.startswith('error: ') and match in line
