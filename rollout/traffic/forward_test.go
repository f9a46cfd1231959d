package traffic_test

import (
	"bufio"
	"crypto/sha256"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/textproto"
	"slices"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/rollout"
	"github.com/headgate-io/headgate/rollout/traffic"
)

// raw sends text over a connection and returns the answer to it.
func raw(t *testing.T, server *httptest.Server, text string) (*http.Response, string) {
	t.Helper()
	conn, err := net.Dial("tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	io.WriteString(conn, text)
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(body)
}

// tell is a server that answers with what it was asked.
func tell(w http.ResponseWriter, req *http.Request) {
	fmt.Fprintf(w, "%s %s %s\n", req.Method, req.RequestURI, req.Host)
	req.Header.Write(w)
}

func TestRequestsArriveAsTheyWereSent(t *testing.T) {
	tests := map[string]struct {
		trust               bool
		request, want, lack string
	}{
		"host":                  {request: "GET / HTTP/1.1\r\nHost: app.example\r\n\r\n", want: "GET / app.example\n"},
		"query":                 {request: "GET /?a=1;b=%zz&&c HTTP/1.1\r\nHost: h\r\n\r\n", want: "GET /?a=1;b=%zz&&c h\n"},
		"escaped path":          {request: "GET /a%2Fb/../c//d HTTP/1.1\r\nHost: h\r\n\r\n", want: "GET /a%2Fb/../c//d h\n"},
		"two slashes":           {request: "GET //evil.example/x HTTP/1.1\r\nHost: h\r\n\r\n", want: "GET //evil.example/x h\n"},
		"another origin":        {request: "GET http://evil.example:1/x HTTP/1.1\r\nHost: h\r\n\r\n", want: "GET /x evil.example:1\n"},
		"method":                {request: "BREW /pot HTTP/1.1\r\nHost: h\r\n\r\n", want: "BREW /pot h\n"},
		"no user agent":         {request: "GET / HTTP/1.1\r\nHost: h\r\n\r\n", lack: "User-Agent"},
		"no encoding":           {request: "GET / HTTP/1.1\r\nHost: h\r\n\r\n", lack: "Accept-Encoding"},
		"named by connection":   {request: "GET / HTTP/1.1\r\nHost: h\r\nConnection: close, X-Hop\r\nX-Hop: 1\r\n\r\n", lack: "X-Hop"},
		"forwarded dropped":     {request: "GET / HTTP/1.1\r\nHost: h\r\nConnection: X-Forwarded-For\r\nX-Forwarded-For: 6.6.6.6\r\n\r\n", want: "X-Forwarded-For: 127.0.0.1\r\n", lack: "6.6.6.6"},
		"proto is what it was":  {request: "GET / HTTP/1.1\r\nHost: h\r\nX-Forwarded-Proto: https\r\n\r\n", want: "X-Forwarded-Proto: http\r\n"},
		"port is not told":      {request: "GET / HTTP/1.1\r\nHost: h\r\nX-Forwarded-Port: 666\r\n\r\n", lack: "666"},
		"real address":          {request: "GET / HTTP/1.1\r\nHost: h\r\nX-Real-IP: 6.6.6.6\r\n\r\n", lack: "6.6.6.6"},
		"port trusted":          {trust: true, request: "GET / HTTP/1.1\r\nHost: h\r\nX-Forwarded-Port: 666\r\n\r\n", want: "X-Forwarded-Port: 666\r\n"},
		"forwarded trusted":     {trust: true, request: "GET / HTTP/1.1\r\nHost: h\r\nX-Forwarded-For: 6.6.6.6\r\nX-Forwarded-Proto: https\r\n\r\n", want: "X-Forwarded-For: 6.6.6.6, 127.0.0.1\r\nX-Forwarded-Host: h\r\nX-Forwarded-Proto: https\r\n"},
		"proxy authorization":   {request: "GET / HTTP/1.1\r\nHost: h\r\nProxy-Authorization: Basic c2VjcmV0\r\n\r\n", lack: "c2VjcmV0"},
		"authorization arrives": {request: "GET / HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer t\r\n\r\n", want: "Authorization: Bearer t\r\n"},
		"upgrade to h2c":        {request: "GET / HTTP/1.1\r\nHost: h\r\nUpgrade: h2c\r\nHTTP2-Settings: AA\r\n\r\n", lack: "Upgrade"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			p := &traffic.Proxy{Primary: serve(t, tell).URL, TrustForwarded: test.trust}
			_, body := raw(t, front(t, p), test.request)
			if !strings.Contains(body, test.want) || test.lack != "" && strings.Contains(body, test.lack) {
				t.Errorf("got %q", body)
			}
		})
	}
}

func TestBasePath(t *testing.T) {
	p := &traffic.Proxy{Primary: serve(t, tell).URL + "/base/"}
	if _, body := raw(t, front(t, p), "GET /x%2Fy?q HTTP/1.1\r\nHost: h\r\n\r\n"); !strings.HasPrefix(body, "GET /base/x%2Fy?q h\n") {
		t.Errorf("got %q", body)
	}
}

func TestConnect(t *testing.T) {
	p := &traffic.Proxy{}
	if resp, _ := raw(t, front(t, p), "CONNECT evil.example:443 HTTP/1.1\r\nHost: evil.example\r\n\r\n"); resp.StatusCode != http.StatusMethodNotAllowed {
		t.Error(resp.Status)
	}
}

func TestStreaming(t *testing.T) {
	next := make(chan struct{})
	p := &traffic.Proxy{Primary: serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Trailer", "X-Sum")
		for i := range 3 {
			fmt.Fprintln(w, i)
			http.NewResponseController(w).Flush()
			<-next
		}
		w.Header().Set("X-Sum", "3")
	}).URL}
	resp, err := http.Get(front(t, p).URL)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewReader(resp.Body)
	for i := range 3 {
		if line, err := lines.ReadString('\n'); err != nil || line != fmt.Sprintln(i) {
			t.Fatal(line, err) // each line is here before the next is written
		}
		next <- struct{}{}
	}
	if _, err := lines.ReadByte(); err != io.EOF || resp.Trailer.Get("X-Sum") != "3" {
		t.Error(err, resp.Trailer)
	}
}

func TestTrailersOfRequests(t *testing.T) {
	p := &traffic.Proxy{Primary: serve(t, func(w http.ResponseWriter, req *http.Request) {
		io.Copy(io.Discard, req.Body)
		io.WriteString(w, req.Trailer.Get("X-Sum"))
	}).URL}
	_, body := raw(t, front(t, p), "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n5\r\nhello\r\n0\r\nX-Sum: 3\r\n\r\n")
	if body != "3" {
		t.Errorf("got %q", body)
	}
}

func TestHugeBodies(t *testing.T) {
	const size = 24 << 20
	echo := serve(t, func(w http.ResponseWriter, req *http.Request) {
		http.NewResponseController(w).EnableFullDuplex()
		io.Copy(w, req.Body)
	})
	p := &traffic.Proxy{Primary: echo.URL, Canary: echo.URL, Start: rollout.Routes{Primary: 100, Mirrored: true}}
	url := front(t, p).URL
	sent, got := sha256.New(), sha256.New()
	// One of a length that is not known, and one of a known.
	for _, length := range []int64{-1, size} {
		sent.Reset()
		got.Reset()
		req, err := http.NewRequest(http.MethodPost, url, io.TeeReader(io.LimitReader(zeros{}, size), sent))
		if err != nil {
			t.Fatal(err)
		}
		req.ContentLength = length
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		n, err := io.Copy(got, resp.Body)
		resp.Body.Close()
		if err != nil || n != size || string(got.Sum(nil)) != string(sent.Sum(nil)) {
			t.Errorf("%d bytes, %v", n, err)
		}
	}
	if s := p.Stats(); s.MirrorsLeftOut != 2 || s.Canary.Requests != 0 {
		t.Errorf("%+v", s)
	}
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }

func TestEarlyHintsAndExpectation(t *testing.T) {
	p := &traffic.Proxy{Primary: serve(t, func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("Link", "</style.css>; rel=preload")
		w.WriteHeader(http.StatusEarlyHints)
		io.Copy(w, req.Body)
	}).URL}
	var said []int
	trace := &httptrace.ClientTrace{Got1xxResponse: func(code int, header textproto.MIMEHeader) error {
		said = append(said, code)
		return nil
	}}
	req, err := http.NewRequestWithContext(httptrace.WithClientTrace(t.Context(), trace), http.MethodPost, front(t, p).URL, strings.NewReader("hello"))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Expect", "100-continue")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || string(body) != "hello" || !slices.Contains(said, http.StatusEarlyHints) {
		t.Errorf("%q, %v, %v", body, said, err)
	}
}
