"""What goes to XPK, and what a container makes of it."""

import json
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]
WHERE = ('--name=lev', '--project=p', '--zone=us-west4-a', '--cluster=c')
TRAIN = (
  '--', 'leviathan', 'train', '--config=configs/lev.py:1p2b',
  '--workdir=gs://b/runs/lev',
)  # fmt: skip
SLICE = ('--accelerator=v5p-128', '--image=i:1')
ALONE = ('--accelerator=v5p-8', '--image=i:1')
WORDS = [
  'a "b" $HOME',
  "it's",
  '$(HOME)',
  '$$',
  '',
  'x # y',
  '{a}',
  '*',
  ';&|)',
]
# As XPK 1.16.0 sets the command into a container's script.
SCRIPT = """
_sigterm() (kill -SIGTERM $! 2>/dev/null;);
trap _sigterm SIGTERM;
(COMMAND) & PID=$!;
while kill -0 $PID 2>/dev/null;
    do sleep 0.1;
done;
wait $PID;
EXIT_CODE=$?;
exit $EXIT_CODE
"""


def expand(text, environment):
  """As Kubernetes does in a container's command."""
  out, i = '', 0
  while i < len(text):
    end = text.find(')', i)
    if text.startswith('$$', i):
      out, i = out + '$', i + 2
    elif text.startswith('$(', i) and text[i + 2 : end] in environment:
      out, i = out + environment[text[i + 2 : end]], end + 1
    else:
      out, i = out + text[i], i + 1
  return out


@pytest.mark.parametrize(
  'name, words',
  [
    ('xpk_v5p_two_slices', (*SLICE, '--num_slices=2', *TRAIN)),
    (
      'xpk_v6e_base_image',
      ('--accelerator=v6e-8', '--base_image=b', '--max_restarts=3', *TRAIN,
       '--prompt=a "b" $HOME'),
    ),
    (
      'xpk_tpu7x',
      ('--accelerator=tpu7x-128', '--image=i:1', '--nocompile', *TRAIN),
    ),
  ],
)  # fmt: skip
def test_a_dry_run_is_as_it_was(fakes, check_golden, name, words):
  code, said, stderr = fakes.launch('xpk', *WHERE, '--dry_run', *words)
  assert code == 0, stderr
  assert not fakes.calls()
  check_golden(name, said)


@pytest.mark.parametrize(
  'words',
  [
    (*SLICE, *TRAIN, *WORDS),
    ('--action=logs',),
    ('--action=status',),
    ('--action=delete',),
  ],
)
def test_a_dry_run_says_exactly_what_is_run(fakes, commands_of, words):
  _, said, _ = fakes.launch('xpk', *WHERE, '--dry_run', *words)
  code, _, stderr = fakes.launch('xpk', *WHERE, *words)
  assert code == 0, stderr
  wanted = commands_of(said)
  for words in wanted:
    if words[:2] == [sys.executable, '-m']:
      del words[:2]
  assert fakes.calls() == wanted
  assert wanted


def test_a_container_gets_the_words_as_they_were_given(
  fakes, commands_of, shellcheck, tmp_path
):
  told = tmp_path / 'told.json'
  program = (
    'import json, sys; json.dump(sys.argv[1:], open(sys.argv[-1], "w")); '
    'sys.exit(75)'
  )
  _, said, stderr = fakes.launch(
    'xpk', *WHERE, *ALONE, '--nocompile', '--dry_run', '--',
    sys.executable, '-c', program, *WORDS, str(told),
  )  # fmt: skip
  (create,) = commands_of(said)
  command = create[-1].removeprefix('--command=')
  expanded = expand(command, {'HOME': 'wrong'} | dict(os.environ))
  shellcheck(expanded)
  script = SCRIPT.replace('COMMAND', expanded)
  done = subprocess.run(['bash', '-c', script], timeout=60)
  assert done.returncode == 75
  assert json.loads(told.read_text()) == [*WORDS, str(told)]


def test_sigterm_reaches_the_command_itself(fakes, commands_of, tmp_path):
  program = (
    'import signal, sys, time; '
    'signal.signal(signal.SIGTERM, lambda *_: sys.exit(75)); '
    'print("up", flush=True); time.sleep(60)'
  )
  _, said, _ = fakes.launch(
    'xpk', *WHERE, *ALONE, '--nocompile', '--dry_run', '--',
    sys.executable, '-c', program,
  )  # fmt: skip
  (create,) = commands_of(said)
  command = create[-1].removeprefix('--command=')
  process = subprocess.Popen(
    ['bash', '-c', expand(SCRIPT.replace('COMMAND', command), {})],
    stdout=subprocess.PIPE,
    text=True,
  )
  assert process.stdout.readline() == 'up\n'
  process.terminate()
  assert process.wait(timeout=60) == 75


def test_logs_are_of_the_cluster_that_xpk_was_asked_about(fakes):
  code, _, stderr = fakes.launch('xpk', *WHERE, '--action=logs')
  assert code == 0, stderr
  xpk, kubectl = fakes.calls()
  assert xpk[:3] == ['xpk', 'workload', 'list'] and '--cluster=c' in xpk
  assert kubectl[:2] == ['kubectl', 'logs']


def test_a_base_image_runs_what_is_laid_on_it():
  lines = (ROOT / 'launch' / 'Dockerfile').read_text().splitlines()
  (folder,) = [s.split()[1] for s in lines if s.startswith('WORKDIR ')]
  assert folder == '/app'  # Where XPK lays it.
  assert f'ENV PYTHONPATH={folder}' in lines


def test_what_an_image_takes_in_is_enough_to_install_it(tmp_path):
  """Of a checkout, what .dockerignore lets through and launch/Dockerfile takes.

  The names in both are plain paths.
  """
  ignore = (ROOT / '.dockerignore').read_text().splitlines()
  allowed = {line[1:] for line in ignore if line.startswith('!')}
  assert '*' in ignore
  lines = (ROOT / 'launch' / 'Dockerfile').read_text().splitlines()
  taken = set()
  for line in lines:
    if line.startswith('COPY '):
      *names, target = line.split()[1:]
      taken |= set(names)
      for name in allowed & set(names):
        if (ROOT / name).is_file():
          shutil.copy(ROOT / name, tmp_path)
        else:
          shutil.copytree(ROOT / name, tmp_path / target)
  assert taken == allowed
  version = subprocess.run(
    [sys.executable, 'setup.py', '--version'],
    cwd=tmp_path,
    capture_output=True,
    text=True,
  )
  assert version.returncode == 0, version.stderr
  assert version.stdout.strip() == '0.1.0'


@pytest.mark.parametrize('line', ['A_KEY="a b"', "A_KEY='a'", 'export A_KEY=a'])
def test_secrets_that_only_a_shell_would_read_are_refused(
  fakes, tmp_path, line
):
  secrets = tmp_path / 'secrets'
  secrets.write_text(f'# Of W&B.\nB_KEY=a"b c"\n\n{line}\n')
  words = (*WHERE, *SLICE, '--nocompile', '--dry_run', f'--secrets={secrets}')
  code, _, stderr = fakes.launch('xpk', *words, *TRAIN)
  assert code == 2
  assert 'line 4 is not NAME=value without quotes' in stderr
  assert 'a b' not in stderr and stderr.count('\n') == 1


def test_secrets_go_by_file(fakes, tmp_path):
  secrets = tmp_path / 'secrets'
  secrets.write_text('WANDB_API_KEY=abc123\n')
  code, _, stderr = fakes.launch(
    'xpk', *WHERE, *SLICE, f'--secrets={secrets}', *TRAIN
  )
  assert code == 0, stderr
  assert f'--env-file={secrets}' in fakes.calls()[-1]
  assert all('abc123' not in word for call in fakes.calls() for word in call)


@pytest.mark.parametrize(
  'words, match',
  [
    ((*SLICE, '--base_image=b', *TRAIN), 'either --image or --base_image'),
    (('--accelerator=v6e-8', *TRAIN), 'either --image or --base_image'),
    ((*SLICE, *TRAIN, '--x=two\nlines'), 'more than one line'),
    (
      (
        '--accelerator=v6e-8',
        '--base_image=b',
        '--',
        'leviathan',
        'train',
        '--config=my.py:x',
      ),
      'below configs/',
    ),
    ((*SLICE, '--name=Lev', *TRAIN), '--name=Lev'),
    ((*SLICE, *TRAIN, '--wandb_token=abc'), '--secrets=FILE'),
  ],
)
def test_refusals_are_one_line(fakes, words, match):
  code, _, stderr = fakes.launch('xpk', *WHERE, '--dry_run', *words)
  assert code == 2
  (line,) = stderr.splitlines()
  assert line.startswith('error: ') and match in line
  assert 'abc' not in line


def test_what_does_not_fit_is_not_submitted(fakes):
  fakes.answer(compile=[[2, '', 'error: does not fit']])
  code, _, stderr = fakes.launch('xpk', *WHERE, *SLICE, *TRAIN)
  assert code == 2 and '--nocompile' in stderr
  assert [call[0] for call in fakes.calls()] == ['leviathan']
