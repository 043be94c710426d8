"""How fast text becomes batches: reading, tokenizing, preparing, loading.

  python benchmarks/data.py --input='text/**/*.jsonl' \
      --tokenizers=spm:tokenizer.model,tiktoken:o200k_base.tiktoken

Prints one JSON row for each

  read      kind of file: MB of text a second on one core
  prepare   tokenizer: MB of text a second of `encode` alone on documents in
            memory (`tokenizer`), and of `leviathan prepare` from a .jsonl.zst
            to a dataset with one worker and with two; `of_tokenizer` and
            `two_over_one` are ratios of rounds taken in turns
  loader    seq_len: training tokens a second, by the clock and by the seconds
            of all cores together

The input is repeated up to --megabytes.
"""

from collections.abc import Callable
from collections.abc import Sequence
import gzip
import itertools
import json
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

from absl import app
from absl import flags

from leviathan.data import files
from leviathan.data import loader
from leviathan.data import mixture
from leviathan.data import records
from leviathan.data import text
from leviathan.data import tokenizer as tokenizers

INPUT = flags.DEFINE_string('input', None, 'Glob.', required=True)
TOKENIZERS = flags.DEFINE_list('tokenizers', None, 'SPECs.', required=True)
MEGABYTES = flags.DEFINE_float('megabytes', 64, 'Of text.')
SEQ_LENS = flags.DEFINE_list('seq_lens', ['512', '2048'], 'Of the loader.')
BATCH_TOKENS = flags.DEFINE_integer('batch_tokens', 1 << 18, 'Of the loader.')
ROUNDS = flags.DEFINE_integer('rounds', 3, 'Timings; the median is printed.')
KINDS: dict[str, Callable[[bytes], bytes]] = {
  '.jsonl': bytes,
  '.jsonl.gz': gzip.compress,
  '.jsonl.zst': files.zstd.compress,
}


def seconds(function: Callable[[], object]) -> float:
  """How long a call takes by the clock."""
  start = time.perf_counter()
  function()
  return time.perf_counter() - start


def corpus() -> list[str]:
  """Texts of so many megabytes."""
  paths = files.expand(INPUT.value)
  texts = [d.text for path in paths for d in text.documents(path, 'text')]
  size = sum(len(t.encode()) for t in texts) / 1e6
  return texts * max(1, round(MEGABYTES.value / size))


def read_row(path: pathlib.Path, megabytes: float) -> dict:
  """Reading a file into documents."""

  def read():
    for _ in text.documents(str(path), 'text'):
      pass

  times = [seconds(read) for _ in range(ROUNDS.value)]
  return {
    'stage': 'read',
    'kind': ''.join(path.suffixes),
    'megabytes': megabytes,
    'megabytes_per_second': megabytes / statistics.median(times),
  }


def make(
  path: pathlib.Path,
  spec: str,
  output: pathlib.Path,
  workers: int,
  seq_len: int = 512,
) -> None:
  """`leviathan prepare` of one file."""
  shutil.rmtree(output, ignore_errors=True)
  command = [sys.executable, '-m', 'leviathan', 'prepare', f'--input={path}']
  command += [f'--tokenizer={spec}', f'--output={output}', '--allow_lossy']
  command += [f'--workers={workers}', f'--seq_len={seq_len}']
  subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def prepare_row(
  path: pathlib.Path, texts: list[str], megabytes: float, spec: str
) -> dict:
  """A tokenizer alone, and what is made with it."""
  tokenizer = tokenizers.load(spec)
  output = path.parent / 'dataset'
  alone, one, two = [], [], []
  for _ in range(ROUNDS.value):
    alone.append(seconds(lambda: [tokenizer.encode(t) for t in texts]))
    one.append(seconds(lambda: make(path, spec, output, 1)))
    two.append(seconds(lambda: make(path, spec, output, 2)))
  pairs = list(zip(alone, one, two, strict=True))
  return {
    'stage': 'prepare',
    'tokenizer': spec,
    'megabytes': megabytes,
    'tokenizer_megabytes_per_second': megabytes / statistics.median(alone),
    'one_worker_megabytes_per_second': megabytes / statistics.median(one),
    'two_workers_megabytes_per_second': megabytes / statistics.median(two),
    'of_tokenizer': statistics.median(a / b for a, b, _ in pairs),
    'two_over_one': statistics.median(b / c for _, b, c in pairs),
  }


def loader_row(dataset: records.Dataset) -> dict:
  """Training batches of one process."""
  seq_len = dataset.manifest.seq_len
  batch_size = max(1, min(BATCH_TOKENS.value // seq_len, len(dataset)))
  batches = loader.train_batches(
    mixture.Mixture([dataset]), batch_size=batch_size, seed=0
  )
  tokens = batch_size * seq_len
  steps = max(8, 40_000_000 // tokens)
  clock, cores = [], []
  for _ in range(ROUNDS.value):
    for _ in itertools.islice(batches, 20):
      pass  # Beyond what has been read ahead.
    start, used = time.perf_counter(), time.process_time()
    for _ in itertools.islice(batches, steps):
      pass
    clock.append(steps * tokens / (time.perf_counter() - start))
    cores.append(steps * tokens / (time.process_time() - used))
  return {
    'stage': 'loader',
    'seq_len': seq_len,
    'batch_size': batch_size,
    'tokens_per_second': statistics.median(clock),
    'tokens_per_second_per_core': statistics.median(cores),
  }


def main(argv: Sequence[str]) -> None:
  """Prints the rows."""
  del argv
  texts = corpus()
  megabytes = sum(len(t.encode()) for t in texts) / 1e6
  lines = ''.join(json.dumps({'text': t}) + '\n' for t in texts).encode()
  with tempfile.TemporaryDirectory() as scratch:
    paths = {kind: pathlib.Path(scratch) / f'a{kind}' for kind in KINDS}
    for kind, path in paths.items():
      path.write_bytes(KINDS[kind](lines))
      print(json.dumps(read_row(path, megabytes)), flush=True)
    path = paths['.jsonl.zst']
    for spec in TOKENIZERS.value:
      print(json.dumps(prepare_row(path, texts, megabytes, spec)), flush=True)
    for seq_len in map(int, SEQ_LENS.value):
      output = path.parent / str(seq_len)
      make(path, TOKENIZERS.value[0], output, 1, seq_len)
      row = loader_row(records.open_dataset(output))
      print(json.dumps(row), flush=True)


if __name__ == '__main__':
  app.run(main)
