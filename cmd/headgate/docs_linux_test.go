package main

import (
	"bufio"
	"cmp"
	"flag"
	"fmt"
	"html"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/fstest"
	"time"

	"go.yaml.in/yaml/v3"

	cmdline "github.com/headgate-io/headgate/internal/command"
	"github.com/headgate-io/headgate/internal/testenv"
)

var released = flag.String("headgate", "", "directory of the headgate that documents run, in place of the one of this test")

// TestDocs checks that the commands in documents do what the text says. Named blocks are files, sh
// and console blocks are typed into a shell, and the scripts of CI recipes are run. The output in
// console blocks is compared except for digests, times and numbers; -update writes it. Local
// servers replace those of example.org, behind a proxy. Each document replaces 127.0.0.1 by its own
// loopback address.
func TestDocs(t *testing.T) {
	world := startDocServers(t)
	var sessions *commandSessions
	if *released == "" {
		sessions = new(commandSessions)
		t.Cleanup(func() { must(t, sessions.end()) })
	}
	for i, page := range pages(t) {
		t.Run(filepath.Base(page), func(t *testing.T) {
			t.Parallel()
			s := &docShell{t: t, sessions: sessions, dir: t.TempDir(), loopback: fmt.Sprintf("127.%d.%d.%d", 1+os.Getpid()%250, 1+os.Getpid()/250%250, 1+i)}
			text := read(t, page)
			for _, b := range blocks(text) {
				switch {
				case b.name != "":
					s.file(b.name, b.text)
					s.recipe(world, b)
				case b.lang == "sh":
					s.start(world)
					for line := range strings.Lines(strings.ReplaceAll(b.text, "\\\n", "")) {
						s.enter(strings.TrimSpace(line))
					}
				case b.lang == "console":
					s.start(world)
					shown := b.text
					got := s.console(shown)
					if *update {
						text = strings.Replace(text, "```console\n"+shown, "```console\n"+got, 1)
					} else if normalizeOutput(got) != normalizeOutput(shown) {
						t.Errorf("the document shows\n%s\nbut it is\n%s", shown, got)
					}
				}
			}
			if *update {
				must(t, os.WriteFile(page, []byte(text), 0o644))
			}
		})
	}
}

// normalizeOutput returns a text without the parts that differ between runs, and without progress lines.
func normalizeOutput(text string) string {
	text = regexp.MustCompile(`(?m)^.*(: receiving |: asking | done; ).*\n`).ReplaceAllString(text, "")
	for _, like := range [][2]string{ // in this order: an ID may have digits only
		{`\b[0-9a-f]{7,}\b`, "HEX"}, {`[ \t]+`, " "}, {`\b\d[\d.:TZ-]*(ms|µs|s|m|h|d| ?[kMG]i?B| B)?\b`, "N"}, {`-{2,}`, "-"},
	} {
		text = regexp.MustCompile(like[0]).ReplaceAllString(text, like[1])
	}
	return regexp.MustCompile(`N( ?N)+`).ReplaceAllString(text, "N")
}

// A docShell is a bash in its own directory. If there are sessions, they execute the headgate
// commands that are plain words.
type docShell struct {
	t        *testing.T
	sessions *commandSessions
	dir      string
	loopback string
	shell    io.Writer
	pipe     *os.File // its output
	out      *bufio.Reader
}

// prelude replaces the programs that a test cannot run.
const prelude = `set -e
go() { if [ "$1" != install ]; then command go "$@"; fi; }
docker() { :; }; kubectl() { :; }; sudo() { :; }; cosign() { :; }; helm() { :; }
cp "$COSIGN_PUB" cosign.pub
`

func (s *docShell) start(world []string) {
	if s.shell != nil {
		return
	}
	bash, err := exec.LookPath("bash")
	if err != nil {
		s.t.Skip(err)
	}
	cmd := exec.Command(bash, "--norc", "--noprofile")
	cmd.Dir, cmd.SysProcAttr = s.dir, &syscall.SysProcAttr{Setpgid: true}
	cmd.Env = slices.Concat(os.Environ(), world, goEnv())
	cmd.Env = append(cmd.Env, "HOME="+s.dir, "GORACE=atexit_sleep_ms=0", "HEADGATE_TESTER=http://"+s.loopback+":8080", "PAGER=cat")
	if *released != "" {
		cmd.Env = append(cmd.Env, "PATH="+*released+string(filepath.ListSeparator)+os.Getenv("PATH"))
	}
	shell, err := cmd.StdinPipe()
	must(s.t, err)
	r, w, err := os.Pipe()
	must(s.t, err)
	cmd.Stdout, cmd.Stderr = w, w
	must(s.t, cmd.Start())
	w.Close()
	s.t.Cleanup(func() {
		syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		cmd.Wait()
		r.Close()
	})
	s.shell, s.pipe, s.out = shell, r, bufio.NewReader(r)
	s.send(prelude)
}

// goEnv returns the cache directory, install directory and flags of the go command. Binaries are
// linked without debug information.
var goEnv = sync.OnceValue(func() []string {
	out, err := exec.Command("go", "env", "GOCACHE", "GOPATH", "GOFLAGS").Output()
	if err != nil {
		panic(err)
	}
	lines := strings.Split(string(out), "\n")
	return []string{"GOCACHE=" + lines[0], "GOPATH=" + lines[1], "GOFLAGS=" + lines[2] + " -ldflags=-w"}
})

// send runs lines in the shell and returns their output. If a line fails, it ends the test.
func (s *docShell) send(lines string) string {
	s.t.Helper()
	const mark = "\x01done"
	must(s.t, s.pipe.SetReadDeadline(time.Now().Add(5*time.Minute)))
	fmt.Fprintf(s.shell, "%s\nprintf '%s\\n'\n", lines, mark)
	var out strings.Builder
	for {
		line, err := s.out.ReadString('\n')
		if text, found := strings.CutSuffix(line, mark+"\n"); found {
			return out.String() + text
		}
		out.WriteString(line)
		if err != nil {
			s.t.Fatalf("%s\nfailed:\n%s", lines, out.String())
		}
	}
}

var (
	addressForm = regexp.MustCompile(`127\.\d+\.\d+\.\d+:\d+`)
	codeForm    = regexp.MustCompile(`^(.*?) +# exit code (\d)`)
	commentForm = regexp.MustCompile(` +# .*$`)
	intervals   = regexp.MustCompile(`--interval \d+s`)
)

// enter types a line. If it starts a server, that is if it ends with &, enter waits until the
// server listens.
func (s *docShell) enter(line string) string {
	s.t.Helper()
	line = s.withLoopback(line)
	line = intervals.ReplaceAllString(line, "--interval 100ms")
	code := ""
	if m := codeForm.FindStringSubmatch(line); m != nil {
		line, code = m[1], m[2]
	}
	line = commentForm.ReplaceAllString(line, "")
	args, isHeadgate := strings.CutPrefix(line, "headgate ")
	switch {
	case isHeadgate && s.sessions != nil && !strings.ContainsAny(args, "|<>&;$`*?~(){}[]\\"):
		return s.execute(args, cmp.Or(code, "0"))
	case code != "":
		return s.send("set +e\n" + line + "\n[ $? = " + code + " ] || exit 9\nset -e")
	}
	server, background := strings.CutSuffix(line, " &")
	if !background {
		return s.send(line)
	}
	_, rest, found := strings.Cut(server, "--proxy ")
	if !found {
		rest = server
	}
	address := addressForm.FindString(rest)
	for command, port := range map[string]string{"headgate serve": ":9090", "headgate tester": ":8080"} {
		if strings.HasPrefix(server, command) && !strings.Contains(server, "--addr") {
			address = s.loopback + port
			server += " --addr " + address
		}
	}
	out := s.send(server + " >>" + filepath.Join(s.dir, ".log") + " 2>&1 &")
	for until := time.Now().Add(time.Minute); address != ""; {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			conn.Close()
			break
		}
		if time.Now().After(until) {
			s.t.Fatalf("%s: %v\n%s", server, err, read(s.t, filepath.Join(s.dir, ".log")))
		}
		s.send("sleep 0.05")
	}
	return out
}

// execute runs a command of plain words in a session, in the directory and with the variables of
// the shell.
func (s *docShell) execute(line, code string) string {
	s.t.Helper()
	args, err := cmdline.Words(line)
	must(s.t, err)
	env := strings.Split(s.send(`printf '%s\0' "$PWD"; env -0`), "\x00")
	a, err := s.sessions.execute(call{Dir: env[0], Env: env[1 : len(env)-1], Args: args, Together: true})
	must(s.t, err)
	if fmt.Sprint(a.Code) != code {
		s.t.Fatalf("headgate %s: exit code %d, want %s:\n%s", line, a.Code, code, a.Out)
	}
	return string(a.Out)
}

// withLoopback returns a text in which the document's loopback address replaces 127.0.0.1.
func (s *docShell) withLoopback(text string) string {
	return strings.ReplaceAll(text, "127.0.0.1", s.loopback)
}

// console types the commands of a block, and returns the block with their output.
func (s *docShell) console(text string) string {
	s.t.Helper()
	me, err := user.Current()
	must(s.t, err)
	var out strings.Builder
	for line := range strings.Lines(text) {
		if command, found := strings.CutPrefix(line, "$ "); found {
			out.WriteString(line)
			got := s.enter(strings.TrimSpace(command))
			out.WriteString(strings.NewReplacer(s.loopback, "127.0.0.1", s.dir, "/home/anna/try", " by "+me.Username, " by anna").Replace(got))
		}
	}
	return out.String()
}

func (s *docShell) file(name, text string) {
	s.t.Helper()
	file := filepath.Join(s.dir, name)
	must(s.t, os.MkdirAll(filepath.Dir(file), 0o755))
	must(s.t, os.WriteFile(file, []byte(s.withLoopback(text)), 0o644))
}

// recipe types the headgate commands of a GitHub workflow or GitLab pipeline. For the action and
// the GitLab template it does what they do with their inputs.
func (s *docShell) recipe(world []string, b block) {
	if !strings.HasPrefix(b.name, ".git") {
		return
	}
	var tree yaml.Node
	must(s.t, yaml.Unmarshal([]byte(b.text), &tree))
	s.start(world)
	var walk func(key string, n *yaml.Node)
	script, err := filepath.Abs(headgateCI)
	must(s.t, err)
	fetch := func(inputs map[string]string, ci string) {
		line := "GITHUB_ACTIONS= GITLAB_CI= GITHUB_STEP_SUMMARY= " + ci + " HEADGATE_STORE=" + cmp.Or(inputs["store"], ".headgate")
		for _, name := range []string{"files", "locked", "out", "args"} {
			line += " HEADGATE_CI_" + strings.ToUpper(name) + "='" + inputs[name] + "'"
		}
		s.send(line + " sh " + script + " fetch")
	}
	walk = func(key string, n *yaml.Node) {
		var used struct {
			Uses, Remote string
			With, Inputs map[string]string
		}
		if n.Kind == yaml.MappingNode && n.Decode(&used) == nil && strings.HasPrefix(used.Uses, "headgate-io/headgate/action@v") {
			fetch(used.With, "GITHUB_ACTIONS=true")
		} else if strings.HasSuffix(used.Remote, "/templates/headgate.yml") {
			fetch(used.Inputs, "GITLAB_CI=true")
		}
		for i, child := range n.Content {
			if n.Kind == yaml.MappingNode && i%2 == 1 {
				walk(n.Content[i-1].Value, child)
			} else if n.Kind != yaml.MappingNode {
				walk(key, child)
			}
		}
		if n.Kind == yaml.ScalarNode && (key == "run" || key == "script") {
			for line := range strings.Lines(n.Value) {
				if strings.HasPrefix(line, "headgate ") {
					s.enter(strings.TrimSpace(line))
				}
			}
		}
	}
	walk("", &tree)
}

// TestDocsTerminal checks that the picture of a terminal shows what the first commands of the
// README print there; -update draws it.
func TestDocsTerminal(t *testing.T) {
	const file = "../../docs/images/terminal.svg"
	s := &docShell{t: t, dir: t.TempDir()}
	world := startDocServers(t)
	for _, b := range blocks(read(t, "../../README.md")) {
		if b.name != "" {
			s.file(b.name, b.text)
		}
	}
	key := strings.TrimPrefix(world[len(world)-1], "COSIGN_PUB=")
	s.file("secrets/release-keys/cosign.pub", read(t, key))
	s.file("secrets/app-login/username", "ci")
	s.file("secrets/app-login/password", "s3cret")
	var lines []string
	for _, line := range []string{"headgate fetch -f sources.yaml --secrets ./secrets", "headgate fetch -f sources.yaml --secrets ./secrets --out ./app gitrepository/app", "find app -type f | sort"} {
		shown := captureTerminal(t, func(tty *os.File) {
			cmd := exec.Command("sh", "-c", line)
			cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = s.dir, append(append(os.Environ(), world...), "NO_COLOR=", "GORACE=atexit_sleep_ms=0"), tty, tty
			testenv.Equal(t, cmd.Run(), nil, line)
		})
		shown = regexp.MustCompile(`.*\x1b\[K`).ReplaceAllString(strings.ReplaceAll(shown, "\r\n", "\n"), "") // drops what was overwritten
		lines = append(append(lines, "$ "+line), strings.Split(strings.TrimSuffix(shown, "\n"), "\n")...)
	}
	picture := svg(lines)
	if *update {
		must(t, os.WriteFile(file, []byte(picture), 0o644))
	}
	text := func(picture string) string {
		return normalizeOutput(html.UnescapeString(regexp.MustCompile(`<[^>]*>`).ReplaceAllString(picture, "")))
	}
	testenv.Equal(t, text(read(t, file)), text(picture), "the picture shows")
}

// svg draws lines of a terminal with 8 pixels per column, and colours the READY cells.
func svg(lines []string) string {
	colours := strings.NewReplacer("\x1b[32m", `<tspan fill="#5fd38d">`, "\x1b[31m", `<tspan fill="#ff7b72">`, "\x1b[33m", `<tspan fill="#e3b341">`, "\x1b[0m", "</tspan>")
	var text strings.Builder
	widest := 0
	for i, line := range lines {
		columns := len([]rune(regexp.MustCompile(`\x1b\[\d*m`).ReplaceAllString(line, "")))
		widest = max(widest, columns)
		line = colours.Replace(html.EscapeString(line))
		if strings.HasPrefix(line, "$ ") {
			line = `<tspan fill="#8ab4f8" font-weight="bold">` + line + "</tspan>"
		}
		fmt.Fprintf(&text, "<text x=\"16\" y=\"%d\" xml:space=\"preserve\" textLength=\"%d\">%s</text>\n", 27+19*i, 8*columns, line)
	}
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="ui-monospace, Menlo, Consolas, monospace" font-size="13" fill="#d8dee6">`+
		"<rect width=\"100%%\" height=\"100%%\" rx=\"8\" fill=\"#14181d\"/>\n%s</svg>\n", 32+8*widest, 28+19*len(lines), text.String())
}

// startDocServers starts the servers that documents use and a proxy to them. It returns the variables that
// configure clients to use them.
func startDocServers(t *testing.T) []string {
	repo := testenv.NewRepo(t)
	repo.Tag("v1.2.3", repo.Commit(testenv.Commit{Branch: "main", Message: "first", Files: fstest.MapFS{
		"deploy/app.yaml":               {Data: []byte("kind: ConfigMap\n")},
		"charts/umbrella/Chart.yaml":    {Data: []byte("apiVersion: v2\nname: umbrella\nversion: 0.1.0\n")},
		"docs/index.md":                 {Data: []byte("# app\n")},
		"clusters/production/apps.yaml": {Data: []byte("kind: ConfigMap\n")},
	}}))
	registry := testenv.StartRegistry(t, testenv.RegistryConfig{})
	signer := testenv.NewCosign(t, 1)
	for _, version := range []string{"1.0.0", "1.2.3"} {
		layer := testenv.TarGzip(t, fstest.MapFS{"platform.yaml": {Data: []byte("kind: Namespace\n")}})
		pushed := registry.Push("team/platform", version, testenv.Manifest{Layers: []testenv.Blob{layer}})
		signer.Sign(registry, "team/platform", pushed, pushed.Digest)
	}
	charts := testenv.StartCharts(t, testenv.ChartsConfig{Path: "/"})
	charts.Put(testenv.ChartVersion{Name: "web", Version: "1.2.3", Files: map[string]string{"values-production.yaml": "replicas: 3\n"}})
	store := testenv.StartS3(t, testenv.StoreConfig{AccessKey: "AKIAEXAMPLE", SecretKey: "example-secret", Anonymous: true})
	store.Bucket("assets").Put("app/logo.png", "png")
	store.Bucket("assets").Put("app/index.html", "<html>")

	ca := testenv.NewCA(t)
	hosts := map[string]*httputil.ReverseProxy{}
	for host, base := range map[string]string{"git": testenv.ServeGit(t, testenv.GitConfig{}, repo).URL, "registry": "http://" + registry.Host, "charts": charts.URL(), "minio": store.Base} {
		to, err := url.Parse(base)
		must(t, err)
		hosts[host+".example.org"] = &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host, r.Out.Host = to.Scheme, to.Host, r.In.Host
			r.Out.URL.Path = regexp.MustCompile(`^/.*\.git/`).ReplaceAllString(r.Out.URL.Path, "/repo.git/")
		}}
	}
	web := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if host := hosts[r.Host]; host != nil {
			host.ServeHTTP(w, r)
			return
		}
		http.NotFound(w, r)
	}))
	web.TLS = ca.ServerConfig(false, "*.example.org")
	web.StartTLS()
	t.Cleanup(web.Close)
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		upstreamConn, err := net.Dial("tcp", web.Listener.Addr().String())
		if err != nil || r.Method != http.MethodConnect || !strings.HasSuffix(r.URL.Hostname(), ".example.org") {
			http.Error(w, "documents lead to example.org alone", http.StatusForbidden)
			return
		}
		defer upstreamConn.Close()
		w.WriteHeader(http.StatusOK)
		clientConn, buffered, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer clientConn.Close()
		go func() { io.Copy(upstreamConn, buffered); upstreamConn.Close() }()
		io.Copy(clientConn, upstreamConn)
	}))
	t.Cleanup(proxy.Close)
	roots, key := filepath.Join(t.TempDir(), "ca.pem"), filepath.Join(t.TempDir(), "cosign.pub")
	for file, text := range map[string][]byte{roots: ca.PEM(), key: signer.Public()} {
		must(t, os.WriteFile(file, text, 0o644))
	}
	return append(testenv.GitEnv(t), "HTTPS_PROXY="+proxy.URL, "NO_PROXY=127.0.0.0/8", "SSL_CERT_FILE="+roots, "CURL_CA_BUNDLE="+roots, "GIT_SSL_CAINFO="+roots, "COSIGN_PUB="+key)
}
