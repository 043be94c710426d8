"""The six tasks by this project's own code and through lm-evaluation-harness.

  python benchmarks/evaluate.py --workdir=runs/lev --task_data=official/files

Rounds are taken by turns in one process, after one that compiles. Each reads
the files, tokenizes, scores and counts; the forward pass is the same. Prints
one JSON row: seconds a task and items per second of both, medians of the
rounds, and the median ratio of the harness's seconds to ours before it. The
harness's include the making of its data sets, as in its own command.
"""

from collections.abc import Sequence
import json
import statistics
import time

from absl import app
from absl import flags
import parity

from leviathan.eval import tasks

# Its flags are this script's too.
flags.FLAGS.set_default('tasks', list(tasks.TASKS))
flags.FLAGS.set_default('limit', 100)
ROUNDS = flags.DEFINE_integer('rounds', 3, 'Of each way.')
WAYS = {'native': parity.native, 'harness': parity.through_harness}


def main(argv: Sequence[str]) -> None:
  """Prints the row."""
  del argv
  model = parity.load()
  names = parity.TASKS.value
  seconds = {way: {name: [] for name in names} for way in WAYS}
  items = 0
  for round_ in range(ROUNDS.value + 1):
    for name in names:
      for way, run in WAYS.items():
        start = time.perf_counter()
        samples = run(model, name).samples
        if round_:
          seconds[way][name].append(time.perf_counter() - start)
      items += not round_ and len(samples)
  totals = {
    way: list(map(sum, zip(*of_task.values(), strict=True)))
    for way, of_task in seconds.items()
  }
  row: dict = {'tasks': names, 'items': items, 'limit': parity.LIMIT.value}
  for way, all_seconds in totals.items():
    medians = {n: statistics.median(s) for n, s in seconds[way].items()}
    row[way] = {
      'items_per_second': items / statistics.median(all_seconds),
      'seconds': medians,
    }
  pairs = zip(totals['harness'], totals['native'], strict=True)
  row['harness_over_native'] = statistics.median(a / b for a, b in pairs)
  print(json.dumps(row))


if __name__ == '__main__':
  app.run(main)
