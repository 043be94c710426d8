"""Every key of a run, with its unit; an arm's file changes only its own.

The backbone is a pre-norm decoder as in Llama: 16 layers, RMSNorm, rotary
positions, full multi-head attention, SwiGLU, no biases. Its sizes reproduce
the parameter counts of Batley & Saha, arXiv 2601.22040 v2.

This file is not a run: train configs/lev.py, configs/tied.py, ...
"""

import ml_collections
from ml_collections import config_dict

SEQ_LEN = 512  # tokens
BATCH_SIZE = 512  # sequences
# Tokens of gpt2, cl100k_base and o200k_base, the vocabularies of the paper.
VOCABULARIES = {'gpt2': 50_257, 'cl100k': 100_277, 'o200k': 200_019}
SCALES = {
  # Learning rates follow GPT-3's table (arXiv 2005.14165); budgets are the
  # paper's 20 tokens for each parameter of the tied model.
  '200m': dict(
    width=640,
    mlp_width=1712,
    head_width=64,
    learning_rate=6e-4,
    tokens=4.1e9,
  ),
  '400m': dict(
    width=1024,
    mlp_width=2736,
    head_width=64,
    learning_rate=3e-4,
    tokens=8.1e9,
  ),
  '1p2b': dict(
    width=2048,
    mlp_width=5472,
    head_width=128,
    learning_rate=2e-4,
    tokens=24.1e9,
  ),
}


def get_config(scale: str) -> ml_collections.ConfigDict:
  """The backbone with a table for its input.

  Args:
    scale: '200m', '400m', '1p2b' or 'smoke', alone or with a vocabulary by
      name, as '400m-gpt2'.

  Returns:
    The config; an arm's file sets its embedder and head.
  """
  scale, dash, vocabulary = scale.partition('-')
  if scale == 'smoke':
    config = _smoke()
  else:
    sizes = dict(_choose('scale', scale, SCALES, 'smoke'))
    budget = sizes.pop('tokens')
    config = _paper(**sizes, steps=round(budget / (BATCH_SIZE * SEQ_LEN)))
  if dash:
    chosen = _choose('vocabulary', vocabulary, VOCABULARIES)
    config.model.vocab_size = chosen
  return config


def _choose(kind, name, choices, *others):
  """choices[name], or an error that lists what there is."""
  if name not in choices:
    known = ', '.join([*choices, *others])
    raise ValueError(f'{kind} {name!r} is unknown; choose one of {known}')
  return choices[name]


def _paper(width, mlp_width, head_width, learning_rate, steps):
  config = ml_collections.ConfigDict()
  config.arm = 'base'  # a label for tables and pictures

  config.model = model = ml_collections.ConfigDict()
  model.vocab_size = VOCABULARIES['o200k']  # V: tokens of the tokenizer
  model.width = width  # D
  model.layers = 16  # blocks, each of attention and MLP
  model.head_width = head_width  # K; D / K heads
  model.mlp_width = mlp_width  # F
  model.precision = 'bfloat16'  # compute type; parameters are float32
  # Computed again in the backward pass: 'none'; all but matrix products
  # ('dots'); all ('full').
  model.remat = 'dots'
  # 'xla'; kernels: 'splash' on TPUs, 'cudnn' in bfloat16 on GPUs; 'auto': what
  # suits the devices.
  model.attention = 'auto'
  # FILE.npy of `leviathan order`: the ranks whose digits lev and factorized_mlp
  # read; '' for the tokenizer's own ids.
  model.token_order = ''
  # What a token id becomes a vector by, with keys of its own.
  model.embedder = ml_collections.ConfigDict({'name': 'table'})
  # A matrix of its own ('untied'), or the input's table ('tied').
  model.head = ml_collections.ConfigDict({'name': 'untied'})

  config.data = data = ml_collections.ConfigDict()
  # Directory written by `leviathan prepare`; several are joined by commas.
  data.train = 'data/pile/train'
  # Of those datasets, shares of the rows: (0.7, 0.3); by their sizes if empty.
  data.weights = ()
  data.seq_len = SEQ_LEN  # L, tokens; the dataset's
  data.batch_size = BATCH_SIZE  # sequences in a step, over all devices
  # Attention and positions within each document of a row alone.
  data.document_mask = False

  config.mesh = mesh = ml_collections.ConfigDict()  # devices along each axis
  mesh.data = 1  # copies of the model; across slices, only this one
  mesh.fsdp = -1  # shards of parameters and batch; -1: all devices left
  mesh.tensor = 1  # shards of heads, MLP and vocabulary

  config.optimizer = optimizer = ml_collections.ConfigDict()  # AdamW
  # After the warm-up: 'cosine'; 'wsd' stays at the peak, then falls by a
  # straight line over its last decay_steps.
  optimizer.schedule = 'cosine'
  optimizer.learning_rate = learning_rate  # at the peak
  optimizer.final_fraction = 0.1  # of the peak, at the horizon
  optimizer.warmup_steps = 500  # from 0 to the peak, by a straight line
  # Of wsd alone: steps, the last before the horizon.
  optimizer.decay_steps = config_dict.placeholder(int)
  # Step at which the decay ends; None: train.steps.
  optimizer.horizon = config_dict.placeholder(int)
  optimizer.b1 = 0.9  # decay of the first moment, a step
  optimizer.b2 = 0.95  # of the second
  optimizer.epsilon = 1e-8  # added to the root of the second moment
  optimizer.moment_type = 'float32'  # of the first moment; or 'bfloat16'
  optimizer.weight_decay = 0.1  # of matrices and tables, see optimizer.py
  optimizer.clip_norm = 1.0  # global norm of the gradient
  # A step is skipped if its loss or gradient norm is not finite, or exceeds the
  # mean of the last 128 steps by so many standard deviations; None: never.
  optimizer.spike_deviations = config_dict.placeholder(float)
  optimizer.skip_limit = 10  # steps skipped in a row; one more ends the run

  config.train = train = ml_collections.ConfigDict()
  train.steps = steps  # in all, also of a run that goes on
  train.seed = 0  # of parameters and of the data's order
  # 'tpu', 'gpu' or 'cpu' where no other will do; 'auto': what is found.
  train.platform = 'auto'
  # A step, a batch of an evaluation or a save that takes longer (compiling
  # included) ends the run, and names the process that the others wait for.
  train.stall_seconds = 1800.0
  # Coefficient of the z-loss, see losses.py; 0 is without, 1e-4 is usual.
  train.z_loss = 0.0
  # Parts of which only one has logits at a time, also in evaluation; a divisor
  # of data.seq_len, 1 is all at once.
  train.loss_chunks = 16
  # Micro-batches that a step's batch is cut into: less memory, the same update.
  train.accumulation = 1

  config.checkpoint = checkpoint = ml_collections.ConfigDict()
  checkpoint.interval = 1000  # steps
  checkpoint.keep = 2  # latest checkpoints
  # Besides, those with the lowest loss on the first evaluation set; a step that
  # was saved because the run was told to stop has none.
  checkpoint.keep_best = 0

  config.evaluate = evaluate = ml_collections.ConfigDict()
  evaluate.interval = 1000  # steps
  evaluate.batch_size = BATCH_SIZE  # sequences, over all devices
  # 'perplexity' and 'frequency' (strata) of datasets; the texts 'wikitext',
  # 'hellaswag', 'arc_easy', 'arc_challenge', 'piqa', 'winogrande', 'lambada'.
  evaluate.tasks = ('perplexity',)
  evaluate.datasets = ('pile=data/pile/validation',)  # NAME=DIRECTORY
  # Directory of the texts' official files; '' is the Hugging Face hub.
  evaluate.task_data = ''
  evaluate.task_items = 0  # of each text, evenly spread; 0 is all

  config.log = log = ml_collections.ConfigDict()
  log.interval = 10  # steps between progress lines
  # Copies of metrics.jsonl: 'tensorboard', in the run's directory; 'wandb'.
  log.sinks = ()
  # (first, last) step of a trace into the run's `profile/`; () is none.
  log.profile = ()
  return config


def _smoke():
  """Small enough for two cores: 4 layers on the data of `make quickstart`."""
  config = _paper(
    width=128,
    mlp_width=344,
    head_width=64,
    learning_rate=2e-3,
    steps=360,
  )
  config.model.vocab_size = 16_384
  config.model.layers = 4
  config.model.precision = 'float32'
  config.model.remat = 'none'
  config.data.train = 'runs/quickstart/data/train'
  config.data.seq_len = 128
  config.data.batch_size = 8
  config.optimizer.warmup_steps = 40
  config.train.loss_chunks = 1
  config.checkpoint.interval = 90
  config.evaluate.interval = 90
  config.evaluate.batch_size = 16
  config.evaluate.datasets = ('held_out=runs/quickstart/data/validation',)
  config.log.interval = 10
  return config
