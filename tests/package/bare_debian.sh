#!/usr/bin/env bash
# Installs the two packages in a bare Debian 12 and does there what a plugin's author does; see usage below.
set -euo pipefail

usage() {
  cat <<USAGE
usage: bare_debian.sh --packages DIR --work DIR --torch DIR [--download] [--keep]

Makes a bare Debian 12 in WORK/root (debootstrap, with this machine's apt sources and pip settings), installs strata_*.deb and
strata-sdk_*.deb of --packages with apt, and for each kind of plugin runs \`strata plugins new KIND mine\` and then the commands of the
README.md that it wrote: build, check, compare (of few steps). Needs root; about 10 minutes. Exit status 77: it cannot be done here.
  --torch DIR  this machine's libtorch, which is copied to where bootstrap.sh --system would unpack it
  --download   let bootstrap.sh bring libtorch instead (545 MB)
  --keep       leave WORK/root there
USAGE
}
fail() { printf 'FAILED: %s\n' "$*" >&2; exit 1; }
skip() { printf 'skipped: %s\n' "$*"; exit 77; }

packages='' work='' torch='' download='' keep=''
while [ $# -gt 0 ]; do
  case $1 in
    --packages | --work | --torch) declare "${1#--}=$2"; shift ;;
    --download) download=1 ;;
    --keep) keep=1 ;;
    *) usage; exit 2 ;;
  esac
  shift
done
[ -n "$packages" ] && [ -n "$work" ] && [ -n "$torch" ] || { usage; exit 2; }
[ "$(id -u)" = 0 ] || skip "making a Debian needs root"
command -v debootstrap >/dev/null || skip "there is no debootstrap here"
root=$work/root

mounted=()
clean_up() {
  for place in "${mounted[@]}"; do umount "$place" || umount -l "$place"; done
  [ -n "$keep" ] || rm -rf --one-file-system "$root"
}
trap clean_up EXIT

make_root() {
  rm -rf --one-file-system "$root"
  mkdir -p "$root"
  local mirror
  mirror=$(apt-get indextargets --format '$(SUITE) $(REPO_URI)' | awk '$1 == "bookworm" {print $2; exit}')
  [ -n "$mirror" ] || mirror=$(apt-get indextargets --format '$(REPO_URI)' | grep -v security | head -1)
  [ -n "$mirror" ] || skip "apt has no sources here"
  debootstrap --variant=minbase --include=ca-certificates bookworm "$root" "$mirror" >"$work/debootstrap.log" 2>&1 ||
    { tail -20 "$work/debootstrap.log"; fail "debootstrap"; }
  # The way to the registries is this machine's.
  cp -a /etc/apt/sources.list.d /etc/apt/apt.conf.d "$root/etc/apt/"
  if [ -s /etc/apt/sources.list ]; then cp /etc/apt/sources.list "$root/etc/apt/"; else rm -f "$root/etc/apt/sources.list"; fi
  cp -L /etc/resolv.conf /etc/hosts "$root/etc/"
  cp -L /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/"
  for file in /etc/pip.conf ~/.config/pip/pip.conf ~/.pip/pip.conf; do
    if [ -e "$file" ]; then install -D "$file" "$root/etc/pip.conf"; fi
  done
  { env | grep -iE '^(PIP_|[a-z]*_proxy=|SSL_CERT|REQUESTS_CA)' || true; } | sed -E "s/'/'\\\\''/g; s/^([^=]*)=(.*)/export \1='\2'/" >"$root/etc/profile.d/registries.sh"
  for place in proc dev; do
    mount --bind "/$place" "$root/$place" || skip "nothing can be mounted here"
    mounted=("$root/$place" "${mounted[@]}")
  done
  mkdir -p "$root/dev/shm"
}
# A login shell there, with nothing of this shell's environment.
inside() { chroot "$root" env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 DEBIAN_FRONTEND=noninteractive bash -lc "$1"; }
quietly() {  # log, command
  inside "$2" >"$work/$1.log" 2>&1 || { tail -40 "$work/$1.log"; fail "$2"; }
}

mkdir -p "$work"
make_root
install -D -t "$root/packages" "$packages"/strata_*.deb "$packages"/strata-sdk_*.deb
quietly apt 'apt-get -q update && apt-get -q install -y --no-install-recommends /packages/*.deb'
inside 'dpkg-query -W strata strata-sdk && command -v strata' || fail "the packages are not installed"

# Without libtorch there is one line that says what brings it.
status=0
inside 'strata plugins list' >"$work/without" 2>&1 || status=$?
[ "$status" = 3 ] && [ "$(wc -l <"$work/without")" = 1 ] && grep -q '/usr/libexec/strata/bootstrap.sh --for run' "$work/without" ||
  { cat "$work/without"; fail "status $status without libtorch"; }
cat "$work/without"
if [ -n "$download" ]; then
  quietly bootstrap '/usr/libexec/strata/bootstrap.sh --for run --yes'
else
  wheel=$(dirname "$(readlink -f "$torch")")
  mkdir -p "$root/opt/strata"
  place=$root/opt/strata/torch-$(cat "$(dirname "${BASH_SOURCE[0]}")/../../cmake/torch_version")
  cp -al "$wheel" "$place" 2>/dev/null || cp -a "$wheel" "$place"
fi
inside 'strata plugins list' || fail "strata plugins list"

# What README.md says, as it stands there; only the comparison is made short.
commands_of() { sed -n '/^```sh$/,/^```$/{/^```/!p}' "$1" | sed '/^strata compare/s/$/ --rounds 1 --steps 2 --warmup-steps 1/'; }
failed=()
for kind in $(ls "$root/usr/share/strata/templates"); do
  begin=$SECONDS
  if inside "mkdir -p /projects/$kind && cd /projects/$kind && strata plugins new $kind mine" >"$work/$kind.log" 2>&1 &&
    folder=$(dirname "$(find "$root/projects/$kind" -name CMakeLists.txt | head -1)") &&
    commands_of "$folder/README.md" >"$root/projects/$kind.sh" && [ -s "$root/projects/$kind.sh" ] &&
    inside "cd '${folder#"$root"}' && bash -euxo pipefail /projects/$kind.sh" >>"$work/$kind.log" 2>&1; then
    printf '%s: plugins new and the commands of its README.md, %s s\n' "$kind" $((SECONDS - begin))
  else
    printf '%s: FAILED\n' "$kind"
    tail -25 "$work/$kind.log" | sed 's/^/    /'
    failed+=("$kind")
  fi
done
[ ${#failed[@]} = 0 ] || fail "${failed[*]}"
