"""What launch/tpu_vm.py runs on each host, in bash.

It puts the words of its command in the place of COMMAND, and what its flags say
in that of NAME and EXTRAS.
"""

# Each host keeps all in ~/NAME: what was copied, the environment, `log`, `pid`
# of the babysitter while it runs, `ended` with its exit code.
_RUNNING = """running() {
  [ -s pid ] && grep -qs babysit "/proc/$(cat pid)/cmdline"
}"""

# The images have an older Python than we need; uv brings one along.
INSTALL = f"""set -eu
mkdir -p "$HOME/NAME"
cd "$HOME/NAME"
{_RUNNING}
if running; then
  echo 'leviathan: running, so nothing is installed; --action=stop first'
  exit 0
fi
rm -f installed leviathan-*.whl
tar --extract --gzip --file="$HOME/NAME.tar.gz"
python3 -m pip install --quiet --user uv==0.13.9
uv=$HOME/.local/bin/uv
"$uv" venv --quiet --allow-existing --python=3.11 venv
set -- leviathan-*.whl
"$uv" pip install --quiet --python=venv/bin/python \\
  --reinstall-package=leviathan "leviathan[EXTRAS] @ file://$PWD/$1"
touch installed"""

# nohup and setsid outlive the ssh that starts them on every image; a unit of
# the user's systemd needs lingering, which only root turns on, and tmux ends
# with the session where logind kills what a user leaves.
START = f"""set -eu
cd "$HOME/NAME"
{_RUNNING}
if running; then
  echo 'leviathan: running'
  exit 0
fi
rm -f pid ended
if [ -f "$HOME/NAME.env" ]; then
  set -a
  # shellcheck source=/dev/null
  . "$HOME/NAME.env"
  set +a
fi
export PATH="$PWD/venv/bin:$PATH"
setsid nohup bash -c '
python launch/babysit.py -- "$@" &
echo $! >pid
wait $!
echo $? >ended
' babysit COMMAND >>log 2>&1 </dev/null &
until [ -s pid ]; do sleep 0.1; done
echo 'leviathan: running'"""

STATUS = f"""set -u
if [ ! -f "$HOME/NAME/installed" ]; then
  echo 'leviathan: bare'
  exit 0
fi
cd "$HOME/NAME" || exit
{_RUNNING}
if running; then
  echo 'leviathan: running'
elif [ -s ended ]; then
  echo "leviathan: ended $(cat ended)"
else
  echo 'leviathan: absent'
fi"""

STOP = f"""set -u
cd "$HOME/NAME" || exit
{_RUNNING}
if running; then
  kill -TERM "$(cat pid)"
  while running; do sleep 1; done
  until [ -s ended ]; do sleep 0.1; done
  echo "leviathan: ended $(cat ended)"
fi"""
