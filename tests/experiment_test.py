"""What a config may not ask for, said with what it may."""

import dataclasses
import json

import jax
import pytest

from leviathan import errors
from leviathan import experiment
from leviathan import sharding


@pytest.mark.parametrize(
  'changes, message',
  [
    (
      {'loss_chunks': 12},
      'config.train.loss_chunks=12 does not divide config.data.seq_len=32; '
      'give 8 or 16',
    ),
    (
      {'loss_chunks': 64},
      'config.train.loss_chunks=64 does not divide config.data.seq_len=32; '
      'give 32',
    ),
    ({'loss_chunks': 0}, 'config.train.loss_chunks=0; give 1 or more'),
    ({'accumulation': 0}, 'config.train.accumulation=0; give 1 or more'),
    ({'z_loss': -1.0}, 'config.train.z_loss=-1.0; give 0 or more, as 1e-4'),
    (
      {'z_loss': float('nan')},
      'config.train.z_loss=nan; give 0 or more, as 1e-4',
    ),
  ],
)
def test_settings_of_the_loss_that_cannot_be_are_refused(
  tiny, changes, message
):
  with pytest.raises(errors.ConfigError) as caught:
    tiny.config(**{f'train__{name}': value for name, value in changes.items()})
  assert str(caught.value) == message


@pytest.mark.parametrize('chunks', [1, 2, 32])
def test_every_divisor_of_the_length_is_taken(tiny, chunks):
  assert tiny.config(train__loss_chunks=chunks).train.loss_chunks == chunks


def test_a_batch_must_divide_over_devices_and_micro_batches(tiny):
  mesh = sharding.make_mesh(
    sharding.MeshConfig(data=2, fsdp=2, tensor=2), jax.devices()
  )

  def open_batches(batch_size):
    changes = {'data__batch_size': batch_size, 'train__accumulation': 3}
    parts = experiment.Experiment(tiny.config(**changes), mesh)
    return parts.train_batches(experiment.open_training(parts.config), 0)

  assert next(open_batches(24)).inputs_BL.shape == (24, 32)
  with pytest.raises(errors.ConfigError) as caught:
    open_batches(20)
  assert str(caught.value) == (
    'config.data.batch_size=20 does not divide over 4 devices (data x fsdp) x '
    'config.train.accumulation=3; the nearest that does is 24'
  )


@pytest.mark.parametrize(
  'changes, message',
  [
    (
      {'train__platform': 'tpus'},
      "config.train.platform='tpus'; choose one of auto, cpu, gpu, tpu",
    ),
    (
      {'train__stall_seconds': 0.0},
      'config.train.stall_seconds=0.0; give more than 0',
    ),
    (
      {'train__stall_seconds': float('nan')},
      'config.train.stall_seconds=nan; give more than 0',
    ),
    (
      {'checkpoint__keep_best': 2, 'evaluate__datasets': ()},
      'config.checkpoint.keep_best=2 keeps the lowest loss on the first of '
      'config.evaluate.datasets; name one, and '
      "'perplexity' among config.evaluate.tasks",
    ),
    (
      {'checkpoint__keep_best': 2, 'checkpoint__interval': 6},
      'config.checkpoint.keep_best=2 wants steps that are evaluated: '
      'config.checkpoint.interval=6 is not a multiple of '
      'config.evaluate.interval=4',
    ),
  ],
)
def test_settings_of_a_run_that_cannot_be_are_refused(tiny, changes, message):
  with pytest.raises(errors.ConfigError) as caught:
    tiny.config(**changes)
  assert str(caught.value) == message


def test_the_best_are_kept_of_steps_that_are_evaluated(tiny):
  config = tiny.config(checkpoint__keep_best=2, checkpoint__interval=8)
  assert config.checkpoint.keep_best == 2


def test_a_run_s_config_is_json_of_the_strict_kind(tiny):
  """Which has no word for what is not finite; other tools read it, too."""
  text = json.dumps(dataclasses.asdict(tiny.config()), allow_nan=False)
  assert json.loads(text)['optimizer']['spike_deviations'] is None
