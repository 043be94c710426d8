"""Arms whose digits are those of a token's rank: one function, one order."""

import dataclasses
import json

import jax
import numpy as np
import pytest

from leviathan import errors
from leviathan import experiment
from leviathan import metrics
from leviathan import restore
from leviathan import rundir
from leviathan import train
from leviathan.data import records
from leviathan.token_order import files
from leviathan.token_order import methods

V = 512
ARMS = ('lev', 'factorized_mlp')
rng = np.random.default_rng(0)
RANK = rng.permutation(V).astype(np.int32)
IDS = rng.integers(0, V, (8, 12)).astype(np.int32)


def value_and_gradients(model, params, ids_BL):
  """Embeddings, and the parameters' gradients of a mixture of them."""
  weights_BLD = np.random.default_rng(1).normal(size=(*ids_BL.shape, 32))

  @jax.jit
  def run(params, ids_BL):
    def mixture(params):
      x_BLD = model.apply(
        {'params': params}, ids_BL, method=lambda m, ids: m.embed(ids)
      )
      return (x_BLD * weights_BLD).sum(), x_BLD

    return jax.value_and_grad(mixture, has_aux=True)(params)

  (_, x_BLD), grads = run(params, ids_BL)
  return jax.device_get((x_BLD, grads))


def embedder_of(tiny, arm, implementation):
  """(config, parameters), whose values all count."""
  config = tiny.config(arm)
  if arm == 'lev':
    embedder = dataclasses.replace(
      config.model.embedder, implementation=implementation
    )
    model = dataclasses.replace(config.model, embedder=embedder)
    config = dataclasses.replace(config, model=model)
  params = config.model.make().init(jax.random.key(0), IDS[:, :2])['params']
  return config.model, jax.tree.map(
    lambda x: x.unbox(), params, is_leaf=lambda x: hasattr(x, 'unbox')
  )


@pytest.mark.parametrize(
  'arm, implementation',
  [
    ('lev', 'reference'),
    ('lev', 'chunked'),
    ('lev', 'pallas'),
    ('factorized_mlp', ''),
  ],
)
def test_an_order_is_the_same_function_of_permuted_ids(
  tiny, arm, implementation
):
  config, params = embedder_of(tiny, arm, implementation)
  plain = value_and_gradients(config.make(), params, RANK[IDS])
  ordered = value_and_gradients(config.make(RANK), params, IDS)
  inverse = value_and_gradients(config.make(np.argsort(RANK)), params, RANK)
  identity = value_and_gradients(config.make(), params, np.arange(V))
  jax.tree.map(np.testing.assert_array_equal, plain, ordered)
  jax.tree.map(np.testing.assert_array_equal, identity, inverse)
  # And it does matter.
  other, _ = value_and_gradients(config.make(), params, IDS)
  assert np.abs(other - ordered[0]).max() > 1e-4


@pytest.fixture(scope='module')
def order_file(tiny, tmp_path_factory):
  """The bytes of the tokens as an order."""
  dataset = records.open_dataset(tiny.directory / 'train')
  path = tmp_path_factory.mktemp('order') / 'bytes.npy'
  files.save(methods.make([dataset], 'bytes'), path)
  return path


def ordered_config(tiny, arm, path, **changes):
  return tiny.config(
    f'{arm}_ordered', model__token_order=str(path), model__layers=1, **changes
  )


@pytest.fixture(scope='module')
def run(tiny, order_file, tmp_path_factory):
  """A run of 4 steps of `lev_ordered`; the file is gone since."""
  path = tmp_path_factory.mktemp('run')
  moved = path / 'moved.npy'
  files.save(files.load(order_file), moved)
  config = ordered_config(tiny, 'lev', moved, train__steps=4)
  run = rundir.open_(str(path / 'run'))
  train.train(experiment.make(config), run, lambda line: None)
  moved.unlink()
  moved.with_suffix('.json').unlink()
  return run


@pytest.mark.parametrize('arm', ARMS)
def test_a_run_is_known_by_its_order(tiny, order_file, arm):
  config = ordered_config(tiny, arm, order_file)
  parts = experiment.make(config)
  manifest = parts.manifest(experiment.open_training(config))
  assert manifest['token_order'] == files.load(order_file).sha256
  plain = experiment.make(tiny.config(arm))
  manifest = plain.manifest(experiment.open_training(plain.config))
  assert manifest['token_order'] is None


def test_another_order_is_refused_when_a_run_goes_on(tiny, run, tmp_path):
  dataset = records.open_dataset(tiny.directory / 'train')
  path = tmp_path / 'random.npy'
  files.save(methods.make([dataset], 'random'), path)
  config = ordered_config(tiny, 'lev', path, train__steps=6)
  with pytest.raises(errors.CheckpointError, match='manifest.token_order'):
    train.train(experiment.make(config), run, lambda line: None)
  none = ordered_config(tiny, 'lev', '', train__steps=6)
  with pytest.raises(errors.CheckpointError, match='manifest.token_order'):
    train.train(experiment.make(none), run, lambda line: None)


def test_the_same_order_elsewhere_goes_on(tiny, run, order_file):
  config = ordered_config(
    tiny, 'lev', order_file, train__steps=4, optimizer__horizon=4
  )
  said = []
  train.train(experiment.make(config), run, said.append)
  assert any('config.model.token_order' in line for line in said)
  assert any('nothing is left to do' in line for line in said)


def test_a_run_is_evaluated_by_its_own_copy_of_the_order(tiny, run, figures_of):
  loaded = restore.restore(run, None)
  np.testing.assert_allclose(
    restore.embeddings(loaded)[IDS[0]],
    loaded.parts.model.apply(
      {'params': loaded.params}, IDS[:1], method=lambda m, ids: m.embed(ids)
    )[0],
    atol=1e-6,
  )
  validation = str(tiny.directory / 'validation')
  direct = figures_of(loaded, validation)['perplexity']
  cached = figures_of(restore.with_table(loaded), validation)
  assert cached['perplexity']['nats_per_token'] == pytest.approx(
    direct['nats_per_token'], rel=1e-6
  )
  model = dataclasses.replace(loaded.parts.config.model, token_order='')
  without = experiment.Experiment(
    dataclasses.replace(loaded.parts.config, model=model), loaded.parts.mesh
  )
  other = figures_of(dataclasses.replace(loaded, parts=without), validation)[
    'perplexity'
  ]
  assert other['nats_per_token'] != pytest.approx(
    direct['nats_per_token'], rel=1e-5
  )


def test_a_changed_copy_is_refused(run):
  copy = files.load(run.token_order_file)
  files.save(
    files.TokenOrder(copy.ids().astype(np.int32)), run.token_order_file
  )
  try:
    with pytest.raises(errors.CheckpointError, match='token_order.npy is not'):
      restore.restore(run, None)
  finally:
    files.save(copy, run.token_order_file)


def test_an_order_of_another_vocabulary_is_refused(tiny, tmp_path):
  path = tmp_path / 'order.npy'
  files.save(files.TokenOrder(np.arange(100)), path)
  parts = experiment.make(ordered_config(tiny, 'lev', path))
  with pytest.raises(errors.DataError, match='orders 100 tokens.*512'):
    train.train(parts, rundir.open_(str(tmp_path / 'run')), lambda line: None)
  assert not (tmp_path / 'run').exists()


def test_an_order_of_another_tokenizer_is_refused(tiny, order_file, tmp_path):
  order = files.load(order_file)
  origin = dataclasses.replace(order.origin, tokenizer_sha256='a' * 64)
  path = tmp_path / 'order.npy'
  files.save(files.TokenOrder(order.rank_V, origin), path)
  parts = experiment.make(ordered_config(tiny, 'lev', path))
  with pytest.raises(errors.DataError, match='another tokenizer'):
    train.train(parts, rundir.open_(str(tmp_path / 'run')), lambda line: None)


def test_an_order_of_a_table_is_refused(tiny, order_file):
  with pytest.raises(errors.ConfigError, match='token_order.*means nothing'):
    tiny.config('tied', model__token_order=str(order_file))


def test_an_order_of_other_data_trains_with_a_note(tiny, order_file, tmp_path):
  order = files.load(order_file)
  origin = dataclasses.replace(order.origin, dataset_fingerprints=('other',))
  path = tmp_path / 'order.npy'
  files.save(files.TokenOrder(order.rank_V, origin), path)
  said = []
  for name, file in (('other', path), ('same', order_file)):
    config = ordered_config(tiny, 'lev', file, train__steps=3)
    run = rundir.open_(str(tmp_path / name))
    train.train(experiment.make(config), run, said.append)
  assert len([line for line in said if 'made from other data' in line]) == 1


def test_a_run_from_before_there_were_orders_is_read(tiny, tmp_path):
  run = rundir.open_(str(tmp_path))
  config = tiny.config(train__steps=3, model__layers=1)
  train.train(experiment.make(config), run, lambda line: None)
  for file, section in ((run.config_file, 'model'), (run.manifest_file, None)):
    values = json.loads(file.read_text())
    del (values[section] if section else values)['token_order']
    file.write_text(json.dumps(values))
  restore.restore(run, None)
  train.train(experiment.make(config), run, lambda line: None)


@pytest.mark.parametrize('mesh', [(8, 1, 1), (2, 2, 2)])
def test_ordered_losses_do_not_depend_on_the_mesh(
  tiny, order_file, tmp_path, mesh
):
  config = ordered_config(tiny, 'lev', order_file, train__steps=3)
  losses = []
  for sizes in ((1, 1, 1), mesh):
    named = dict(zip(('data', 'fsdp', 'tensor'), sizes, strict=True))
    parts = experiment.Experiment(
      config,
      experiment.sharding.make_mesh(
        dataclasses.replace(config.mesh, **named),
        jax.devices()[: int(np.prod(sizes))],
      ),
    )
    run = rundir.open_(str(tmp_path / str(sizes)))
    train.train(parts, run, lambda line: None)
    rows = metrics.read(run.metrics_file)
    losses.append([row['nats_per_token'] for row in rows])
  np.testing.assert_allclose(*losses, atol=1e-5)


def test_shapes_need_no_file(tiny, tmp_path):
  config = ordered_config(tiny, 'lev', tmp_path / 'missing.npy')
  assert experiment.make(config).abstract_state.params['embedder']
