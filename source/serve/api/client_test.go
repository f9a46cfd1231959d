package api_test

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/serve/api"
)

var errStop = errors.New("enough")

// streamServer returns a server that answers each request with the next of bodies, and records the queries in queries.
func streamServer(t *testing.T, queries *[]string, bodies ...string) *httptest.Server {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		*queries = append(*queries, r.URL.RawQuery)
		n := len(*queries) - 1
		if n >= len(bodies) {
			http.Error(w, "no more", http.StatusForbidden)
			return
		}
		if bodies[n] == "" {
			http.Error(w, "later", http.StatusBadGateway)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(w, bodies[n])
	}))
	t.Cleanup(s.Close)
	return s
}

// TestWatchReconnects checks that Watch reconnects, and reports each new, changed and deleted source once.
func TestWatchReconnects(t *testing.T) {
	one := func(name, ready string) string {
		return fmt.Sprintf("data: {\"source\":{\"kind\":\"Bucket\",\"namespace\":\"a\",\"name\":%q,\"ready\":%q}}\n\n", name, ready)
	}
	const synced = "data: {\"synced\":true}\n\n"
	var queries []string
	s := streamServer(t, &queries,
		": hello\n\n"+one("x", "True")+one("y", "True")+synced+one("x", "False"),
		"",
		one("x", "False")+one("z", "True")+":\n\n"+synced+"data: {\"gone\":{\"kind\":\"Bucket\",\"namespace\":\"a\",\"name\":\"z\"}}\n\n",
	)
	var notices, states []string
	lost := func(err error) { states = append(states, fmt.Sprint(err)) }
	err := (&api.Client{Base: s.URL, Lost: lost}).Watch(t.Context(), api.Filter{Kind: "bucket"}, func(n api.Notice) error {
		switch {
		case n.Source != nil:
			notices = append(notices, n.Source.Name+" "+n.Source.Ready)
		case n.Gone != nil:
			notices = append(notices, n.Gone.Name+" gone")
		case n.Synced:
			notices = append(notices, "synced")
		}
		return nil
	})
	if !errors.Is(err, fs.ErrPermission) { // a refusal ends the watch
		t.Error(err)
	}
	want := []string{"x True", "y True", "synced", "x False", "z True", "y gone", "z gone"}
	testenv.Equal(t, notices, want, "notices")
	if len(states) != 3 || !strings.Contains(states[0], "watch sources at the server "+s.URL) || states[1] != "<nil>" || states[2] == "<nil>" {
		t.Errorf("it was lost and back: %q", states) // once per interruption, however many attempts it takes
	}
}

// restartTransport is a transport to a server that refuses the second connection.
type restartTransport int

func (n *restartTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if *n++; *n == 2 {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	}
	return http.DefaultTransport.RoundTrip(r)
}

// TestFollowReconnects checks that FollowEvents resumes after the last event, even if the server is down for a while, and
// reports no event twice.
func TestFollowReconnects(t *testing.T) {
	event := func(id int) string { return fmt.Sprintf("id: %d\ndata: {\"id\":%d}\n\n", id, id) }
	var queries []string
	s := streamServer(t, &queries, event(3)+event(5), event(5)+event(6), event(9))
	var ids []int64
	err := (&api.Client{Base: s.URL, HTTP: &http.Client{Transport: new(restartTransport)}}).FollowEvents(t.Context(), api.EventQuery{Limit: 10}, func(e api.Event) error {
		if ids = append(ids, e.ID); e.ID == 9 {
			return errStop
		}
		return nil
	})
	if !errors.Is(err, errStop) || !slices.Equal(ids, []int64{3, 5, 6, 9}) {
		t.Errorf("received %v, %v", ids, err)
	}
	testenv.Equal(t, queries, []string{"follow=true&limit=10", "after=5&follow=true", "after=6&follow=true"}, "asked for")
}

// TestErrors checks the errors of the client for servers that do not answer properly.
func TestErrors(t *testing.T) {
	const token = "token-of-the-client"
	ref := source.Reference{Kind: "Bucket", Namespace: "a", Name: "b"}
	for name, tt := range map[string]struct {
		answer http.HandlerFunc
		want   []string
	}{
		"401": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(401) }, []string{"--token-file", "HEADGATE_TOKEN", "Bucket/a/b"}},
		"403": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(403) }, []string{"does not allow", "HEADGATE_TOKEN"}},
		"TLS": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(400) }, []string{"https://"}},
		"404": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(404) }, []string{"Bucket/a/b"}},
		"a repeated key": {func(w http.ResponseWriter, r *http.Request) {
			http.Error(w, "you sent "+r.Header.Get("Authorization"), 500)
		}, []string{"status 500"}},
		"no JSON": {func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "<html>") }, []string{"not that of a server of sources"}},
		"control": {func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "\x1b[31mred", 500) }, []string{"red"}},
		"endless": {func(w http.ResponseWriter, r *http.Request) { endless(w, r) }, []string{"more than 64 MiB"}},
		"elsewhere": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://elsewhere.example/", http.StatusTemporaryRedirect)
		}, []string{"another server"}},
	} {
		s := httptest.NewServer(tt.answer)
		_, err := (&api.Client{Base: s.URL, Token: token}).Source(t.Context(), ref)
		s.Close()
		if err == nil {
			t.Errorf("%s: no error", name)
			continue
		}
		for _, want := range append(tt.want, s.URL) {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v lacks %q", name, err, want)
			}
		}
		if strings.Contains(err.Error(), token) || strings.ContainsRune(err.Error(), '\x1b') {
			t.Errorf("%s: %q", name, err)
		}
	}
	if _, err := (&api.Client{Socket: filepath.Join(t.TempDir(), "none")}).Source(t.Context(), ref); err == nil || !strings.Contains(err.Error(), "headgate serve") {
		t.Errorf("without a server: %v", err)
	}
}

// TestAuthority checks the advice for a certificate of an unknown authority.
func TestAuthority(t *testing.T) {
	s := httptest.NewUnstartedServer(http.NotFoundHandler())
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	defer s.Close()
	_, _, err := (&api.Client{Base: s.URL}).Sources(t.Context(), api.Filter{})
	if err == nil || !strings.Contains(err.Error(), "--ca-file") {
		t.Error(err)
	}
}

func endless(w http.ResponseWriter, r *http.Request) {
	for block := make([]byte, 1<<20); r.Context().Err() == nil; {
		if _, err := w.Write(block); err != nil {
			return
		}
	}
}

// TestSocket calls a server through a socket.
func TestSocket(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("sockets are for Unix")
	}
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	must(t, err)
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, `{"sources":[{"name":"x"}],"defects":["y"]}`)
	})}
	go s.Serve(l)
	defer s.Close()
	list, defects, err := (&api.Client{Socket: path}).Sources(t.Context(), api.Filter{})
	if err != nil || len(list) != 1 || list[0].Name != "x" || len(defects) != 1 {
		t.Errorf("%v %v %v", list, defects, err)
	}
}

var must = testenv.Must
