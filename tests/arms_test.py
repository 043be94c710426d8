"""All six arms train, on the very same rows."""

import jax
import pytest

from leviathan import experiment
from leviathan import metrics
from leviathan import rundir
from leviathan import train

ARMS = ('tied', 'untied', 'lev', 'albert', 'flat_mlp', 'factorized_mlp')


@pytest.fixture(scope='module')
def runs(tiny, tmp_path_factory):
  """{arm: rows of metrics.jsonl} of 200 steps each."""
  found = {}
  for arm in ARMS:
    config = tiny.config(
      arm,
      train__steps=200,
      evaluate__interval=200,
      checkpoint__interval=200,
    )
    mesh = experiment.sharding.make_mesh(config.mesh, jax.devices()[:1])
    run = rundir.open_(str(tmp_path_factory.mktemp(arm)))
    train.train(experiment.Experiment(config, mesh), run, lambda line: None)
    found[arm] = metrics.read(run.metrics_file)
  return found


@pytest.mark.parametrize('arm', ARMS)
def test_an_arm_learns(runs, arm):
  rows = [row for row in runs[arm] if row['split'] == 'train']
  losses = [row['nats_per_token'] for row in rows]
  assert len(losses) == 200
  assert sum(losses[-10:]) / 10 < losses[0] - 1


@pytest.mark.parametrize('arm', ARMS[1:])
def test_every_arm_sees_the_rows_that_tied_sees(runs, arm):
  def seen(rows):
    return [row['batch_hash'] for row in rows if row['split'] == 'train']

  assert len(set(seen(runs['tied']))) > 100
  assert seen(runs[arm]) == seen(runs['tied'])


def test_arms_differ_in_what_they_compute(runs):
  assert len({rows[-1]['nats_per_token'] for rows in runs.values()}) == 6
