# What a newcomer types on a bare Debian 12, as root in its chroot. tests/bench/newcomer.py calls it, and reads the lines
# that begin with STEP.
set -euo pipefail
export DEBIAN_FRONTEND=noninteractive

step() { # step NAME COMMAND...
  local start=$EPOCHREALTIME
  "${@:2}" >/tmp/said 2>&1 || { cat /tmp/said; echo "failed: ${*:2}"; exit 1; }
  echo "STEP $1 $(python3 -c "print($EPOCHREALTIME - $start)" 2>/dev/null || echo 0)"
}
install_deb() { apt-get install -y --no-install-recommends "$@"; }
says() { # says WHAT COMMAND...: the command's output holds WHAT.
  local said
  said=$("${@:2}" 2>&1) && [[ $said == *"$1"* ]] || { echo "$said"; return 1; }
}

install_deb python3-venv >/dev/null
make_environment() {
  python3 -m venv /opt/venv
  /opt/venv/bin/pip uninstall --quiet -y setuptools # PyTorch asks for a newer one, which is with it.
  echo /opt/own >/opt/venv/lib/python3.11/site-packages/own.pth # PyTorch is there already.
}
step environment make_environment

# By pip alone: the daemon comes with it, and starts when it is needed.
step wheels /opt/venv/bin/pip install --no-index --find-links /packages 'plumbline[daemon]'
cat >/tmp/compare.py <<'PYTHON'
import plumbline, torch

x = torch.randn(64, generator=torch.Generator().manual_seed(1))
print(plumbline.compare(lambda: {"mean": x.sum() / 63}, lambda: {"mean": x.mean()}))
PYTHON
[[ ! $(command -v plumblined) ]]
step verdict_by_wheel says 'TYPE_II (PROVEN)' /opt/venv/bin/python /tmp/compare.py
step plumb_by_wheel says bf16 /opt/venv/bin/plumb formats bf16

# By APT: a daemon of the machine, as its own user.
step deb install_deb /packages/plumbline_*.deb
id plumbline >/dev/null
install -d -o plumbline -g plumbline -m 755 /run/plumbline /var/lib/plumbline
start_daemon() {
  setpriv --reuid plumbline --regid plumbline --clear-groups /usr/bin/plumblined --listen=unix:/run/plumbline/d.sock \
    --socket-mode=0666 --data-dir=/var/lib/plumbline </dev/null >/tmp/daemon.log 2>&1 &
  for ((tenths = 0; tenths < 300; ++tenths)); do
    [[ ! -S /run/plumbline/d.sock ]] || return 0
    sleep 0.1
  done
  cat /tmp/daemon.log
  return 1
}
step daemon start_daemon
cat >/tmp/watch.py <<'PYTHON'
import plumbline, torch

model = torch.nn.Linear(4, 1)
with plumbline.watch(model, None, "unix:///run/plumbline/d.sock", job="first", every=1) as audit:
    with audit.step():
        model(torch.ones(2, 4)).sum().backward()
    assert audit.flush(60) and not audit.errors(), audit.errors()
    print([verdict.verdict for verdict in audit.verdicts()])
PYTHON
step verdict_by_deb says "['TYPE_I']" /opt/venv/bin/python /tmp/watch.py
step plumb_by_deb says first plumb jobs --server unix:///run/plumbline/d.sock
