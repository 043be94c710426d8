"""What goes to gcloud, and what its scripts do on a host."""

import json
import os
import pathlib
import shlex
import signal
import subprocess
import sys
import time

import pytest

ROOT = pathlib.Path(__file__).parents[2]
WHERE = ('--name=lev', '--project=p', '--zone=us-west4-a')
SLICE = ('--accelerator=v5litepod-64', '--poll=0')
ALONE = ('--accelerator=v5litepod-8', '--poll=0')
TRAIN = (
  '--', 'leviathan', 'train', '--config=configs/lev.py:1p2b',
  '--workdir=gs://b/runs/lev',
)  # fmt: skip
# A shell, and our own scripts, would take these apart.
WORDS = [
  'a "b" $HOME `c`', "it's", '$$', '', '--x=a\\b', 'two\nlines', 'COMMAND NAME',
  '--', '*', 'é;&|',
]  # fmt: skip
NONE = [1, '', 'ERROR: NOT_FOUND: Resource lev was not found']
ACTIVE = [0, 'ACTIVE', '']


def verbs(calls):
  """What was done to the queued resource, in order."""
  return [c[4] if c[0] == 'gcloud' else c[0] for c in calls]


@pytest.mark.parametrize(
  'name, words',
  [
    ('tpu_vm_v5e_spot', (*SLICE, '--spot', *TRAIN, '--prompt=a "b" $HOME')),
    (
      'tpu_vm_v6e_two_slices',
      ('--accelerator=v6e-256', '--num_slices=2', '--reserved',
       '--service_account=sa@p.iam.gserviceaccount.com', '--extras=tpu,wandb',
       *TRAIN, '--config.mesh.fsdp=256'),
    ),
    (
      'tpu_vm_v4_one_host',
      ('--accelerator=v4-8', '--nocompile', '--action=babysit', *TRAIN),
    ),
  ],
)  # fmt: skip
def test_a_dry_run_is_as_it_was(fakes, check_golden, name, words):
  code, said, stderr = fakes.launch('tpu_vm', *WHERE, '--dry_run', *words)
  assert code == 0, stderr
  assert not fakes.calls()
  check_golden(name, said)


def test_a_dry_run_says_exactly_what_is_run(fakes, commands_of, tmp_path):
  secrets = tmp_path / 'secrets'
  secrets.write_text('WANDB_API_KEY=abc123\n')
  words = (*WHERE, *SLICE, f'--secrets={secrets}', *TRAIN, *WORDS)
  _, said, _ = fakes.launch('tpu_vm', '--dry_run', *words)
  wanted = commands_of(said)
  waiting = [0, 'WAITING_FOR_RESOURCES', '']
  fakes.answer(describe=[NONE, waiting, waiting, ACTIVE])
  code, said, stderr = fakes.launch('tpu_vm', *words)
  assert code == 0, stderr
  assert said.count('lev is WAITING_FOR_RESOURCES') == 2
  calls = fakes.calls()
  assert verbs(calls).count('describe') == 4
  for words in wanted:
    if words[:2] == [sys.executable, '-m']:
      del words[:2]
  (copy,) = [c for c in calls if c[0] == 'cp']
  folder = pathlib.Path(copy[-1])
  assert folder.parent == ROOT / 'build' and not folder.exists()
  wanted = [
    [word.replace('DIRECTORY', copy[-1]) for word in words] for words in wanted
  ]
  describe = next(words for words in wanted if 'describe' in words)
  assert [c for c in calls if c != describe] == [
    w for w in wanted if w != describe
  ]
  assert verbs(calls)[:3] == ['leviathan', 'describe', 'create']
  assert all('abc123' not in word for words in calls for word in words)


@pytest.mark.parametrize('last', ['FAILED', 'SUSPENDED'])
def test_a_slice_that_is_gone_is_said(fakes, last):
  fakes.answer(
    describe=[[0, 'PROVISIONING', ''], [0, last, ''], [0, 'no\nquota', '']]
  )
  code, _, stderr = fakes.launch('tpu_vm', *WHERE, *SLICE, *TRAIN)
  assert code == 2
  assert f'is {last}' in stderr and '--action=delete' in stderr
  assert ('final (no quota);' in stderr) == (last == 'FAILED')
  assert 'create' not in verbs(fakes.calls())


def test_what_does_not_fit_costs_nothing(fakes):
  fakes.answer(compile=[[2, '', 'error: does not fit']], describe=[ACTIVE])
  code, _, stderr = fakes.launch('tpu_vm', *WHERE, *SLICE, *TRAIN)
  assert code == 2
  assert 'leviathan compile ended with exit code 2' in stderr
  assert '--nocompile' in stderr
  assert verbs(fakes.calls()) == ['leviathan']
  code, _, _ = fakes.launch('tpu_vm', *WHERE, *SLICE, '--nocompile', *TRAIN)
  assert code == 0 and 'leviathan' not in verbs(fakes.calls())


def test_the_babysitter_makes_a_slice_anew_and_ends_with_the_command(fakes):
  running = [0, 'leviathan: running\nleviathan: running', '']
  bare = [0, 'leviathan: bare\nleviathan: bare', '']
  fakes.answer(
    describe=[NONE, ACTIVE, ACTIVE,
              [0, 'SUSPENDED', ''], NONE, ACTIVE, ACTIVE],
    ssh=[
      bare, [0, '', ''], [0, '', ''],  # Status, install, start.
      running,
      bare, [0, '', ''], [0, '', ''],
      [0, 'leviathan: ended 0\nleviathan: running', ''],
      [0, 'leviathan: ended 0\nleviathan: ended 5', ''],
    ],
  )  # fmt: skip
  code, said, stderr = fakes.launch(
    'tpu_vm', *WHERE, *SLICE, '--action=babysit', '--nocompile', *TRAIN
  )
  assert code == 5, stderr
  assert 'ended with exit code 5' in said
  # Asks whether it is there, makes it, and asks what its hosts do; what the
  # first slice was given, the second gets too.
  anew = ['describe', 'create', 'describe', 'ssh', 'scp', 'ssh', 'ssh']
  look = ['describe', 'ssh']
  assert verbs(fakes.calls()) == [
    'cp', 'pip', 'tar',
    *anew, *look, 'describe', 'delete', *anew, *look, *look
  ]  # fmt: skip


def test_the_babysitter_lets_a_slice_that_goes_away_end_first(fakes):
  ended = [0, 'leviathan: ended 75', '']
  fakes.answer(
    describe=[ACTIVE, [0, 'SUSPENDED', ''], NONE, ACTIVE],
    ssh=[ended, [0, 'leviathan: running', ''], ended],
  )
  code, _, stderr = fakes.launch(
    'tpu_vm', *WHERE, *SLICE, '--action=babysit', '--nocompile', *TRAIN
  )
  # Twice 75 on a slice that stays: somebody has stopped it.
  assert code == 75, stderr
  assert verbs(fakes.calls())[3:] == [
    'describe', 'ssh', 'describe', 'delete', 'describe', 'create',
    'describe', 'ssh', 'describe', 'ssh', 'describe', 'ssh',
  ]  # fmt: skip


def test_the_babysitter_bears_some_failures_and_not_all(fakes):
  fakes.answer(describe=[[1, '', 'ERROR: no network']])
  code, said, stderr = fakes.launch(
    'tpu_vm', *WHERE, *SLICE, '--action=babysit', '--nocompile', *TRAIN
  )
  assert code == 2
  assert said.count('ERROR: no network') == 4
  assert 'ERROR: no network' in stderr
  assert verbs(fakes.calls())[3:] == ['describe'] * 5


def test_the_babysitter_gives_up_on_what_is_never_granted(fakes):
  """A slice that was had in between makes it count anew."""
  refused = [[0, 'FAILED', ''], [0, 'Quota of 8\nchips exceeded', ''], NONE]
  running = [0, 'leviathan: running', '']
  fakes.answer(describe=[*refused * 4, ACTIVE, *refused * 5], ssh=[running])
  code, said, stderr = fakes.launch(
    'tpu_vm', *WHERE, *SLICE, '--action=babysit', '--nocompile', *TRAIN
  )
  assert code == 2
  assert said.count('lev is FAILED (Quota of 8 chips exceeded)\n') == 9
  assert 'was FAILED 5 times in a row' in stderr and stderr.count('\n') == 1
  done = verbs(fakes.calls())
  assert done.count('delete') == 9 and done.count('create') == 8


@pytest.mark.parametrize(
  'action, wanted',
  [
    ('logs', ['ssh']),
    ('status', ['describe', 'ssh']),
    ('stop', ['ssh']),
    ('delete', ['delete']),
  ],
)
def test_what_comes_later_needs_the_name_alone(fakes, action, wanted):
  code, _, stderr = fakes.launch('tpu_vm', *WHERE, f'--action={action}')
  assert code == 0, stderr
  calls = fakes.calls()
  assert verbs(calls) == wanted
  assert all('--project=p' in c and '--zone=us-west4-a' in c for c in calls)
  if action != 'logs':
    hosts = {'--worker=all', '--node=all'}
    assert all(hosts <= set(c) for c in calls if 'ssh' in c)


@pytest.mark.parametrize(
  'words, match',
  [
    (('--accelerator=v5litepod-63', *TRAIN), 'v5litepod-64'),
    (('--accelerator=v7-8', *TRAIN), 'of no kind'),
    (('--accelerator=tpu7x-8', *TRAIN), 'launch/xpk.py'),
    (TRAIN, '--accelerator is missing'),
    (SLICE, 'no command is given'),
    ((*SLICE, '--spot', '--reserved', *TRAIN), 'exclude one another'),
    ((*SLICE, '--name=Lev', *TRAIN), '--name=Lev'),
    ((*SLICE, *TRAIN, '--config.a.b', 'c'), '--config.a.b=VALUE'),
    ((*SLICE, '--', 'leviathan', 'train'), 'has no --config'),
    ((*SLICE, '--', 'python', 'x.py'), '--coordinator=auto'),
    ((*SLICE, '--', 'env', 'WANDB_API_KEY=abc'), '--secrets=FILE'),
    ((*SLICE, '--', 'bash', '-c', 'HF_TOKEN=abc x'), '--secrets=FILE'),
    ((*SLICE, *TRAIN, '--api_key=abc'), '--secrets=FILE'),
    ((*SLICE, '--secrets=no/file', *TRAIN), 'no/file'),
    ((*SLICE, '--', 'leviathan', 'train', '--config=/c.py:x'), 'checkout'),
    ((*SLICE, '--', 'leviathan', 'train', '--config=no.py:x'), 'checkout'),
  ],
)
def test_refusals_are_one_line(fakes, words, match):
  code, stdout, stderr = fakes.launch('tpu_vm', *WHERE, '--dry_run', *words)
  assert code == 2
  assert not stdout  # Nothing is compiled, let alone asked for.
  (line,) = stderr.splitlines()
  assert line.startswith('error: ') and match in line
  assert 'abc' not in line


def test_the_archive_holds_wheel_configs_and_babysitter(
  fakes, commands_of, tmp_path
):
  own = ROOT / 'configs' / 'studies' / 'base.py'
  words = (*WHERE, *SLICE, '--dry_run', '--', 'leviathan', 'train',
           '--config=setup.py:x')  # fmt: skip
  _, said, _ = fakes.launch('tpu_vm', '--nocompile', *words)
  (tar,) = [c for c in commands_of(said) if c[0] == 'tar']
  wheel = tmp_path / 'DIRECTORY' / 'wheel'
  wheel.mkdir(parents=True)
  (wheel / 'leviathan-0.1.0-py3-none-any.whl').write_text('')
  subprocess.run(tar, cwd=tmp_path, check=True)
  host = tmp_path / 'host'
  host.mkdir()
  archive = wheel.with_name('lev.tar.gz')
  subprocess.run(['tar', 'xzf', archive], cwd=host, check=True)
  for name in (
    'leviathan-0.1.0-py3-none-any.whl', 'launch/babysit.py', 'setup.py',
    own.relative_to(ROOT),
  ):  # fmt: skip
    assert (host / name).is_file(), name


class Host:
  """A home directory in which a slice's scripts run."""

  def __init__(self, directory):
    self.home = directory
    self.folder = directory / 'lev'
    for name in ('launch', 'venv/bin'):
      (self.folder / name).mkdir(parents=True)
    babysit = (ROOT / 'launch' / 'babysit.py').read_text()
    (self.folder / 'launch' / 'babysit.py').write_text(babysit)
    (self.folder / 'installed').write_text('')
    self.program('python', f'exec {sys.executable} "$@"')

  def program(self, name, script):
    file = self.folder / 'venv' / 'bin' / name
    file.write_text(f'#!/bin/bash\n{script}\n')
    file.chmod(0o755)

  def run(self, script):
    """As sshd runs what gcloud hands over: by the user's shell."""
    done = subprocess.run(
      ['bash', '-c', script],
      capture_output=True,
      text=True,
      timeout=120,
      cwd=self.home,
      env=os.environ | {'HOME': str(self.home), 'PYTHONPATH': str(ROOT)},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout

  def wait(self, status, wanted):
    until = time.monotonic() + 60
    while (said := self.run(status)) != wanted:
      assert time.monotonic() < until, said
      time.sleep(0.1)


@pytest.fixture
def script_of(fakes, commands_of):
  """The last script that an action has run on the hosts."""

  def script(action, *words):
    _, said, stderr = fakes.launch(
      'tpu_vm', *WHERE, f'--action={action}', '--dry_run', *words
    )
    sent = [
      word.removeprefix('--command=')
      for command in commands_of(said)
      for word in command
      if word.startswith('--command=')
    ]
    return sent[-1]

  return script


def test_a_host_gets_the_words_as_they_were_given(script_of, tmp_path):
  host = Host(tmp_path / 'home')
  host.program(
    'told',
    "exec python -c \"import json, os, sys; json.dump([os.environ['SECRET'], "
    "*sys.argv[1:]], open('told.json', 'w'))\" \"$@\"",
  )
  (host.home / 'lev.env').write_text('SECRET="a b"\n')
  status = script_of('status')
  assert host.run(status) == 'leviathan: absent\n'
  start = script_of('start', *ALONE, '--', 'told', *WORDS)
  assert host.run(start) == 'leviathan: running\n'
  host.wait(status, 'leviathan: ended 0\n')
  told = json.loads((host.folder / 'told.json').read_text())
  assert told == ['a b', *WORDS]
  assert (host.folder / 'log').read_text() == 'start 1 ended with exit code 0\n'


def test_a_command_outlives_its_shell_and_is_stopped_once(
  script_of, tmp_path, until
):
  host = Host(tmp_path / 'home')
  host.program(
    'waits', 'trap "echo saved; exit 75" TERM\necho up\n'
    'while true; do sleep 0.1; done',
  )  # fmt: skip
  start = script_of('start', *ALONE, '--', 'waits')
  install = script_of('install', *ALONE, '--', 'waits')
  status, stop = script_of('status'), script_of('stop')
  assert host.run(start) == 'leviathan: running\n'
  log = host.folder / 'log'
  until(lambda: log.read_text() == 'up\n')
  pid = (host.folder / 'pid').read_text()
  try:
    assert host.run(start) == 'leviathan: running\n'
    assert (host.folder / 'pid').read_text() == pid, 'started twice'
    assert host.run(status) == 'leviathan: running\n'
    assert 'running, so nothing is installed' in host.run(install)
    assert host.run(status) == 'leviathan: running\n'
    assert host.run(stop) == 'leviathan: ended 75\n'
  finally:
    if pathlib.Path(f'/proc/{pid.strip()}').is_dir():
      os.kill(int(pid), signal.SIGTERM)
  assert 'saved' in log.read_text()
  assert host.run(status) == 'leviathan: ended 75\n'
  assert host.run(stop) == ''
  (host.folder / 'installed').unlink()
  assert host.run(status) == 'leviathan: bare\n'


@pytest.mark.parametrize('action', ['install', 'start', 'status', 'stop'])
def test_the_scripts_are_sound(script_of, shellcheck, action):
  script = script_of(action, *SLICE, *TRAIN)
  shellcheck(script)
  bash, flag, inner = shlex.split(script)
  assert (bash, flag) == ('bash', '-c')
  shellcheck(inner)
