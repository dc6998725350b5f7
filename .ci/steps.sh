# Steps that .ci/run and .ci/long share. To be sourced, with `top` set to the top of the checkout.
# shellcheck shell=bash disable=SC2154

acceptance=$top/../shared/acceptance
target=${CARGO_TARGET_DIR:-$top/target}
case $target in /*) ;; *) target=$top/$target ;; esac

# What power cuts are made with. These tools lie where only root looks.
disks=(mkfs.ext4:e2fsprogs mkfs.xfs:xfsprogs mount:mount)
PATH=$PATH:/usr/sbin:/sbin

summary=()
failed=0

# step NAME COMMAND…: runs it, prints a header and the duration, remembers the outcome and goes on. A
# function given as COMMAND runs with `set -e` off, so such a function returns its own status.
step() {
  local name=$1 begin=$SECONDS status=0
  shift
  printf '\n==> %s\n' "$name"
  "$@" || status=$?
  local took=$((SECONDS - begin))
  if [ "$status" -eq 0 ]; then
    printf '<== %s: ok, %d s\n' "$name" "$took"
    summary+=("ok     $(printf '%4d s' "$took")  $name")
  else
    printf '<== %s: FAILED with status %d after %d s\n' "$name" "$status" "$took"
    summary+=("FAILED $(printf '%4d s' "$took")  $name (status $status)")
    failed=1
  fi
}

as_root() {
  if [ "$(id -u)" -eq 0 ]; then "$@"; elif command -v sudo >/dev/null; then sudo "$@"; else return 1; fi
}

# tools [PROGRAM:PACKAGE…]: what every check needs, and more, each with the Debian package it comes from.
tools() {
  local missing=() pair
  for pair in git:git jq:jq ssh-keygen:openssh-client ps:procps strace:strace script:bsdutils zsh:zsh fish:fish tmux:tmux cc:gcc "$@"; do
    command -v "${pair%%:*}" >/dev/null || missing+=("${pair##*:}")
  done
  if [ "${#missing[@]}" -gt 0 ]; then
    printf 'installing: %s\n' "${missing[*]}"
    if ! command -v apt-get >/dev/null; then
      printf 'no apt-get here; install by hand: %s\n' "${missing[*]}" >&2
      return 1
    fi
    as_root env DEBIAN_FRONTEND=noninteractive apt-get update -q || return 1
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends "${missing[@]}" || return 1
  fi
  if ! command -v cargo >/dev/null; then
    printf 'no cargo on PATH: install Rust (rust-version in Cargo.toml) from https://rustup.rs\n' >&2
    return 1
  fi
  cargo --version && git --version
}

# accept SCRIPT: one acceptance script against the release binary, never longer than ten minutes.
accept() {
  if [ "$built" = no ]; then
    printf 'no release binary of this state to run it against\n' >&2
    return 1
  fi
  timeout --kill-after=10 600 bash "$acceptance/$1" "$target/release"
}

# durability KILLS: the script with that many kills. They are aimed by a duration measured at its start. On a machine
# that was busy just then they miss, and the script says so: that alone, and nothing about the program, is worth
# another try.
durability() {
  local log try kills=$1
  log=$(mktemp)
  for try in 1 2 3; do
    if KILLS=$kills accept durability.sh >"$log" 2>&1; then cat "$log"; rm -f "$log"; return 0; fi
    cat "$log"
    grep -q '^FAIL kills miss' "$log" && [ "$(grep -c '^FAIL' "$log")" -eq 1 ] || break
    printf 'the kills missed; once more\n'
  done
  rm -f "$log"
  return 1
}

finish() {
  printf '\n==> summary after %d s\n' "$SECONDS"
  printf '%s\n' "${summary[@]}"
  if [ "$failed" -eq 0 ]; then printf 'green as far as it ran\n'; else printf 'not green\n'; fi
  exit "$failed"
}

# release: the binary the acceptance scripts run against.
built=no
release() { cargo build --release --locked && built=yes; }

# torture FLOOR: the suites of tests/torture with the real binary and real git.
torture() { AGENTPROTO_FLOOR=$1 cargo test --release --locked --test torture; }

# formats HASH REFS COMMAND…: the command with repositories made in this format; git itself reads the variables.
formats() {
  local hash=$1 refs=$2
  shift 2
  GIT_DEFAULT_HASH=$hash GIT_DEFAULT_REF_FORMAT=$refs "$@"
}
