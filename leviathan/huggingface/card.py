"""README.md of an exported model: what it is, its numbers, how to use it."""

from collections.abc import Iterator
import json

from leviathan import evaluate
from leviathan import metrics
from leviathan import parameters
from leviathan import restore
from leviathan import results
from leviathan import rundir
from leviathan.huggingface import check

_HEADER = """---
library_name: transformers
pipeline_tag: text-generation
tags:
- leviathan
---
"""


def text(
  loaded: restore.Restored,
  precision: str,
  compared: check.Found,
  end: str,
  numbers: str,
) -> str:
  """The card.

  Args:
    loaded: what was exported.
    precision: of the weights.
    compared: what the export was held against.
    end: the token that ends a text.
    numbers: see there.
  """
  parts = [
    _HEADER + f'# {loaded.parts.config.arm}, step {loaded.step}',
    _model(loaded, precision),
    f'After writing, the files were read back: in float32 {compared}.',
    _use(end, loaded.run.tokenizer().eos_id),
    numbers,
  ]
  return '\n\n'.join(parts) + '\n'


def numbers(loaded: restore.Restored) -> str:
  """The card's section of losses and evaluations.

  Raises:
    CheckpointError: an evaluation of the step cannot be read.
  """
  return '\n\n'.join(['## Numbers', _trained(loaded), *_evaluated(loaded)])


def _model(loaded: restore.Restored, precision: str) -> str:
  config, manifest = loaded.parts.config, loaded.run.manifest()
  model = config.model
  counts = parameters.count(manifest['parameters'], model.vocab_size)
  return (
    'A Llama, trained with leviathan. It was trained with '
    f'{counts["total"]:,} parameters: input {counts["input"]:,} (embedder '
    f'`{model.embedder.name}`), backbone {counts["backbone"]:,}, head '
    f'{counts["head"]:,}. Here its input is a table of {model.vocab_size:,} x '
    f'{model.width}: whatever the embedder computes, it is a function of the '
    f'token id. {model.layers} layers, {model.width // model.head_width} heads '
    f'of width {model.head_width}, MLP {model.mlp_width}; weights in '
    f'{precision}; at most {config.data.seq_len} tokens, the length trained on.'
  )


def _use(end: str, eos_id: int) -> str:
  return f"""## Use

```python
import transformers

tokenizer = transformers.AutoTokenizer.from_pretrained(DIRECTORY)
model = transformers.AutoModelForCausalLM.from_pretrained(DIRECTORY)
prompt = tokenizer.bos_token + 'Once upon a time'
ids = tokenizer(prompt, return_tensors='pt', split_special_tokens=False)
print(tokenizer.decode(model.generate(**ids, max_new_tokens=64)[0]))
```

In training each document follows `{end}` (id {eos_id}), which also
ends it. So put it before a prompt that begins a text, as `leviathan generate`
does. The tokenizer adds nothing by itself, as in evaluation, and takes nothing
in a text for special, `{end}` neither, unless it is told
`split_special_tokens=False`."""


def _trained(loaded: restore.Restored) -> str:
  """What training saw, and the last losses of this step."""
  config, manifest = loaded.parts.config, loaded.run.manifest()
  rows = [
    row
    for row in metrics.read(loaded.run.metrics_file)
    if row['step'] == loaded.step
  ]
  tokens = f', {rows[0]["tokens"]:,} tokens' if rows else ''
  lines = [
    f'- trained for {loaded.step:,} of {config.train.steps:,} steps{tokens}, '
    f'seed {config.train.seed}; data {manifest["dataset_fingerprint"]}',
    f'- tokenizer {manifest["tokenizer"]["sha256"]}',
  ]
  for row in rows:
    if row['split'].startswith('validation/'):
      lines.append(
        f'- {row["split"]}, while training: {row["nats_per_token"]:.4f} '
        f'nats per token, perplexity {row["perplexity"]:,.2f}'
      )
  return '\n'.join(lines)


def _evaluated(loaded: restore.Restored) -> Iterator[str]:
  """The figures of `leviathan evaluate`, with the protocol of each."""
  found: evaluate.Results = {}
  protocols = []
  for path in sorted(loaded.run.eval_dir(loaded.step).glob('*.json')):
    document = metrics.from_json(rundir.read_json(path))
    for name, figures in document['datasets'].items():
      result = evaluate.Result(figures, list)
      found.setdefault(document['task'], {})[name] = result
      said = 'an early version of leviathan, which did not say'
      if 'protocol' in figures:
        said = f'`{json.dumps(figures["protocol"], ensure_ascii=False)}`'
      protocols.append(f'- {document["task"]} {name}: {said}')
  if not found:
    yield 'This step has not been evaluated by `leviathan evaluate`.'
    return
  yield results.text([found])
  yield 'How each was measured:\n\n' + '\n'.join(protocols)
