# prepare.sh is what the run scripts have in common: a new directory work, commits that have the same
# IDs everywhere, and servers that end with the script.
set -euo pipefail
rm -rf work
mkdir work
cd work
trap '{ kill $(jobs -pr) || true; wait; } 2>/dev/null' EXIT

export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_NOSYSTEM=1
export GIT_AUTHOR_NAME=Anna GIT_AUTHOR_EMAIL=anna@example.org GIT_AUTHOR_DATE=2026-01-01T00:00:00Z
export GIT_COMMITTER_NAME=Anna GIT_COMMITTER_EMAIL=anna@example.org GIT_COMMITTER_DATE=2026-01-01T00:00:00Z

# step LINE: says what comes next.
step() { echo "# $*"; }

# try COMMAND…: shows a command and runs it.
try() {
	echo "\$ $*"
	"$@"
}

# await COMMAND…: waits until a command succeeds, for 30 seconds at most.
await() {
	for _ in {1..300}; do
		"$@" && return
		sleep 0.1
	done
	echo "not within 30 seconds: $*" >&2
	return 1
}

# url FILE: waits until the server that was started last has written its URL to FILE, and prints it.
url() {
	await settled "$1" $!
	found "$1" || { cat ./*.log >&2; return 1; }
}
settled() { found "$1" >/dev/null || ! kill -0 "$2" 2>/dev/null; }
found() { sed -n '/ at http:/{s#.* at \(http://[0-9.:]*[0-9]\).*#\1#p;q;}' "$1" 2>/dev/null | grep .; }

# stay URL: leaves servers running until Enter is pressed, in a terminal.
stay() {
	if [ -t 0 ]; then read -rp "The page is at $1/ui/. Press Enter to stop. "; fi
}

# commit DIR MESSAGE: commits all changes in a repository.
commit() {
	git -C "$1" add --all
	git -C "$1" commit -q -m "$2"
}

# charts DIR: makes a repository of charts, with one chart.
charts() {
	mkdir -p "$1/web"
	printf '%s\n' 'apiVersion: v2' 'name: web' 'version: 1.2.3' >"$1/web/Chart.yaml"
	tar -C "$1" -czf "$1/web-1.2.3.tgz" web
	cat >"$1/index.yaml" <<-'END'
		apiVersion: v1
		entries:
		  web:
		  - {apiVersion: v2, name: web, version: 1.2.3, urls: [web-1.2.3.tgz]}
	END
}
