package oci_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/internal/transport"
	"github.com/headgate-io/headgate/oci"
	"github.com/headgate-io/headgate/source"
)

var noon = time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)

// A pauseLog records the pauses between requests, and skips them.
type pauseLog []time.Duration

func (p *pauseLog) install(r *oci.Repository) {
	now := noon
	r.Pause(func(_ context.Context, d time.Duration) error {
		*p = append(*p, d)
		now = now.Add(d)
		return nil
	}, func() time.Time { return now })
}

func TestRetry(t *testing.T) {
	const s = time.Second
	date := func(d time.Duration) string { return noon.Add(d).Format(http.TimeFormat) }
	for name, row := range map[string]struct {
		defect testenv.Defect
		header string // Retry-After
		within time.Duration
		pauses []time.Duration
		fails  string
	}{
		"busy twice":            {testenv.Defect{Status: 429, Times: 2}, "7", 0, []time.Duration{7 * s, 7 * s}, ""},
		"busy until":            {testenv.Defect{Status: 503, Times: 1}, date(20 * s), 0, []time.Duration{20 * s}, ""},
		"busy until before":     {testenv.Defect{Status: 503, Times: 1}, date(-20 * s), 0, []time.Duration{0}, ""},
		"busy, no hint":         {testenv.Defect{Status: 503, Times: 3}, "", 0, []time.Duration{s / 2, s, 2 * s}, ""},
		"busy, odd hint":        {testenv.Defect{Status: 429, Times: 1}, "soon", 0, []time.Duration{s / 2}, ""},
		"busy, negative hint":   {testenv.Defect{Status: 429, Times: 1}, "-5", 0, []time.Duration{s / 2}, ""},
		"proxy in between":      {testenv.Defect{Status: 502, Times: 1}, "", 0, []time.Duration{s / 2}, ""},
		"always busy":           {testenv.Defect{Status: 429}, "1", 0, []time.Duration{s, s, s, s}, "429 Too Many Requests: try again in 1s"},
		"busy for long":         {testenv.Defect{Status: 429}, "3600", 0, nil, "try again in 1h0m0s"},
		"busy for ever":         {testenv.Defect{Status: 429}, "99999999999999999999", 0, []time.Duration{s / 2, s, 2 * s, 4 * s}, "429"},
		"longer than there is":  {testenv.Defect{Status: 429}, "30", 20 * s, nil, "try again in 30s"},
		"as long as there is":   {testenv.Defect{Status: 429, Times: 1}, "30", 40 * s, []time.Duration{30 * s}, ""},
		"broken":                {testenv.Defect{Status: 500}, "", 0, nil, "500"},
		"hung up":               {testenv.Defect{Do: testenv.Cut, After: -1, Times: 2}, "", 0, []time.Duration{s / 2, s}, ""},
		"always hung up":        {testenv.Defect{Do: testenv.Cut, After: -1}, "", 0, []time.Duration{s / 2, s}, "EOF"},
		"hung up in the middle": {testenv.Defect{Do: testenv.Cut, After: 5, Phase: testenv.GetManifest}, "", 0, nil, "EOF"},
	} {
		t.Run(name, func(t *testing.T) {
			g := testenv.StartRegistry(t, testenv.RegistryConfig{})
			want := g.Push("team/app", "v1", layer("x"))
			if row.header != "" {
				row.defect.Header = http.Header{"Retry-After": {row.header}}
			}
			g.Break(&row.defect)
			r := plain(t, g)
			var p pauseLog
			p.install(r)
			ctx := t.Context()
			if row.within > 0 {
				ctx = deadline{ctx, noon.Add(row.within)}
			}
			d, _, err := r.Manifest(ctx, ocispec.Descriptor{Digest: want.Digest})
			if row.fails == "" && (err != nil || d.Digest != want.Digest) || row.fails != "" && (err == nil || !strings.Contains(err.Error(), row.fails)) {
				t.Error(d, err)
			}
			if len(p) != len(row.pauses) {
				t.Fatal(p)
			}
			for i := range p {
				testenv.Equal(t, p[i], row.pauses[i], p)
			}
			testenv.Equal(t, g.Count(), len(p)+1, "requests")
			if e, ok := errors.AsType[*oci.StatusError](err); ok && row.header == "3600" && e.After != time.Hour {
				t.Error(e.After)
			}
		})
	}
}

// A deadline is a context with a deadline by the clock of the test.
type deadline struct {
	context.Context
	at time.Time
}

func (d deadline) Deadline() (time.Time, bool) { return d.at, true }

// TestRetryObeysContext checks that waiting for a retry ends with the context.
func TestRetryObeysContext(t *testing.T) {
	g := testenv.StartRegistry(t, testenv.RegistryConfig{})
	g.Break(&testenv.Defect{Status: 429, Header: http.Header{"Retry-After": {"30"}}})
	r := plain(t, g)
	ctx, cancel := context.WithCancel(t.Context())
	r.Pause(func(ctx context.Context, d time.Duration) error {
		cancel()
		return transport.Sleep(ctx, d)
	}, time.Now)
	_, err := r.Head(ctx, "v1")
	testenv.ErrorIs(t, err, context.Canceled)
}

// TestRetryOfUploads checks that an upload is retried after status 429, but not after a status
// that does not exclude that it had an effect.
func TestRetryOfUploads(t *testing.T) {
	m := []byte(`{"schemaVersion":2,"mediaType":"` + ocispec.MediaTypeImageManifest + `","config":{},"layers":[]}`)
	d := testenv.Blob{MediaType: ocispec.MediaTypeImageManifest, Data: m}.Descriptor()
	b := testenv.Blob{Data: []byte("x")}
	for _, row := range []struct {
		phase  testenv.Phase
		status int
		pauses int
	}{
		{testenv.PutManifest, 429, 1}, {testenv.PutManifest, 503, 0}, {testenv.PutBlob, 429, 1}, {testenv.PutBlob, 503, 0},
	} {
		g := testenv.StartRegistry(t, testenv.RegistryConfig{})
		g.Break(&testenv.Defect{Phase: row.phase, Status: row.status, Times: 1})
		r := plain(t, g)
		var p pauseLog
		p.install(r)
		push := func() error { return r.Push(t.Context(), d, strings.NewReader(string(m))) }
		if row.phase == testenv.PutBlob {
			push = func() error { return r.Push(t.Context(), b.Descriptor(), strings.NewReader("x")) }
		}
		if err := push(); (err == nil) != (row.pauses == 1) || len(p) != row.pauses {
			t.Error(row, err, p)
		}
	}
}

// TestRefusalKeepsWords checks that a message is cut between words: half a password would
// not be recognized and redacted.
func TestRefusalKeepsWords(t *testing.T) {
	g := newGuardedRegistry(t, testenv.NewCA(t), nil)
	access, env := g.access()
	for _, message := range []string{strings.Repeat("x ", 126) + password, strings.Repeat("y", 250) + " b3BlbiBzZXNhbWU=", strings.Repeat("z", 250) + password} {
		g.Break(&testenv.Defect{Status: http.StatusForbidden, Body: `{"errors":[{"code":"DENIED","message":"` + message + `"}]}`})
		r, _ := connect(t, access, env)
		err := fetchManifest(r)
		if e, ok := errors.AsType[*oci.StatusError](err); !ok || strings.Contains(e.Message, password[:4]) || strings.Contains(e.Message, "b3B") || len(e.Message) > 300 {
			t.Errorf("%q", err)
		}
	}
}

// TestRefusalHidesSignature checks that the query of a redirect, which is a credential, is
// redacted if the server repeats it.
func TestRefusalHidesSignature(t *testing.T) {
	const signature = "c2lnbmF0dXJl"
	storage := testenv.StartRegistry(t, testenv.RegistryConfig{})
	storage.Break(&testenv.Defect{Status: http.StatusForbidden, Body: `{"errors":[{"code":"DENIED","message":"signature ` + signature + ` expired"}]}`})
	g := testenv.StartRegistry(t, testenv.RegistryConfig{})
	g.Break(serve(testenv.GetManifest, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, storage.Base+r.URL.Path+"?sig="+signature, http.StatusTemporaryRedirect)
	}))
	err := fetchManifest(plain(t, g))
	if err == nil || strings.Contains(err.Error(), signature) || !strings.Contains(err.Error(), "expired") {
		t.Error(err)
	}
}

func TestPushRefused(t *testing.T) {
	g := testenv.StartRegistry(t, testenv.RegistryConfig{})
	r := plain(t, g)
	b := testenv.Blob{Data: []byte("abc")}
	d := b.Descriptor()
	for name, push := range map[string]func() error{
		"other content": func() error { return r.Push(t.Context(), d, strings.NewReader("xyz")) },
		"too short":     func() error { return r.Push(t.Context(), d, strings.NewReader("ab")) },
		"too long": func() error { // the registry may keep the correct part
			return r.Push(t.Context(), testenv.Blob{Data: []byte("def")}.Descriptor(), io.MultiReader(strings.NewReader("defg")))
		},
		"no digest": func() error { return r.Push(t.Context(), ocispec.Descriptor{Size: 3}, strings.NewReader("abc")) },
		"other manifest": func() error {
			return r.Push(t.Context(), ocispec.Descriptor{MediaType: ocispec.MediaTypeImageIndex, Digest: d.Digest, Size: 3}, strings.NewReader("xyz"))
		},
		"huge manifest": func() error {
			return r.Push(t.Context(), ocispec.Descriptor{MediaType: ocispec.MediaTypeImageIndex, Digest: d.Digest, Size: 3}, bytes.NewReader(make([]byte, 5<<20)))
		},
		"unknown manifest": func() error { return r.Tag(t.Context(), d, "v1") },
	} {
		if err := push(); err == nil {
			t.Error(name, "is accepted")
		}
	}
	g.Break(&testenv.Defect{Phase: testenv.PutBlob, Status: http.StatusForbidden, Body: `{"errors":[{"code":"DENIED","message":"read only"}]}`})
	err := r.Push(t.Context(), testenv.Blob{Data: []byte("new")}.Descriptor(), strings.NewReader("new"))
	if e, ok := errors.AsType[*oci.StatusError](err); !ok || !errors.Is(err, fs.ErrPermission) || e.Message != "read only" {
		t.Error(err)
	}
}

// A diversion is a way in which a registry tries to divert credentials to another server, aside.
type diversion struct {
	name    string
	tls     bool
	bearer  *testenv.Bearer
	aside   testenv.RegistryConfig                  // of the other server, with the host name localhost
	set     func(r *setup, aside *testenv.Registry) // sets up the diversion
	spec    func(*source.OCIRepositorySpec)         // changes the spec of the object
	asked   bool                                    // aside may receive requests without credentials
	trusted bool                                    // aside may receive credentials
	reason  string                                  // "" for success
	says    []string                                // parts of the error
}

// elsewhere returns the base URL of a server with the host name localhost.
func elsewhere(g *testenv.Registry) string {
	return strings.Replace(g.Base, "127.0.0.1", "localhost", 1)
}

// divert redirects requests of one phase.
func divert(phase testenv.Phase) func(*setup, *testenv.Registry) {
	return func(r *setup, aside *testenv.Registry) {
		d := testenv.Redirect(elsewhere(aside))
		d.Phase = phase
		r.g.Break(d)
	}
}

var wantsPassword = testenv.RegistryConfig{Username: "user", Password: canary}

var diversions = []diversion{
	{name: "layer elsewhere, with TLS", tls: true, set: divert(testenv.GetBlob), asked: true},
	{name: "layer elsewhere, with a token", bearer: &testenv.Bearer{}, set: divert(testenv.GetBlob), asked: true},
	{name: "manifest elsewhere", bearer: &testenv.Bearer{}, set: divert(testenv.GetManifest), asked: true},
	{name: "layer where a password is wanted", aside: wantsPassword, set: divert(testenv.GetBlob), asked: true, reason: authFailed, says: []string{"401", "localhost"}},
	{name: "layer where a token is wanted", aside: testenv.RegistryConfig{Username: "user", Password: canary, Bearer: &testenv.Bearer{}}, set: divert(testenv.GetBlob),
		asked: true, reason: authFailed, says: []string{"401", "localhost"}},
	{name: "layer where TLS is given up", tls: true, set: func(r *setup, _ *testenv.Registry) {
		r.g.Break(testenv.Redirect("http://localhost:1"))
	}, reason: pullFailed, says: []string{"http"}},
	{name: "layer behind a URL with a password", set: func(r *setup, aside *testenv.Registry) {
		d := testenv.Redirect(strings.Replace(elsewhere(aside), "//", "//user:"+url.QueryEscape(canary)+"@", 1))
		d.Phase = testenv.GetBlob
		r.g.Break(d)
		aside.Break(&testenv.Defect{Do: testenv.Leak, Status: 400})
	}, asked: true, trusted: true, reason: pullFailed, says: []string{"400"}},
	{name: "token service that repeats credentials", bearer: &testenv.Bearer{}, set: breaks(testenv.Defect{Do: testenv.Leak, Status: 400}), reason: pullFailed, says: []string{"400"}},
	{name: "token service that stalls", bearer: &testenv.Bearer{}, set: breaks(testenv.Defect{Do: testenv.Stall, After: -1}), spec: shortTimeout, reason: pullFailed, says: []string{"spec.timeout"}},
	{name: "tokens that are never good", bearer: &testenv.Bearer{}, set: breaks(testenv.Defect{Status: 200, Body: `{"token":"other"}`}), reason: authFailed, says: []string{"401", "check the credentials"}},
}

// breaks sets a defect of the token service.
func breaks(d testenv.Defect) func(*setup, *testenv.Registry) {
	d.Phase = testenv.GetToken
	return func(r *setup, _ *testenv.Registry) { r.g.Break(&d) }
}

// TestCredentialsStay checks that credentials and issued tokens are sent only to the registry
// that they are for, whatever it answers.
func TestCredentialsStay(t *testing.T) {
	for _, l := range diversions {
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			l.try(t)
		})
	}
}

func (l diversion) try(t *testing.T) {
	config := testenv.RegistryConfig{Username: "user", Password: canary, Bearer: l.bearer}
	if l.tls {
		config.CA = testenv.NewCA(t)
		l.aside.CA = config.CA
	}
	aside := testenv.StartRegistry(t, l.aside)
	r := newSetup(t, config)
	layer := testenv.TarGzip(t, text("a", "one\n"))
	r.push(layer)
	aside.Push("team/app", "latest", testenv.Manifest{Layers: []testenv.Blob{layer}})
	if l.set != nil {
		l.set(r, aside)
	}
	obj := r.object("app", l.spec)
	if l.reason == "" {
		r.mustStore(obj)
	} else {
		r.mustRefuse(obj, nil, l.reason, l.says...)
	}
	if n := r.g.Count(); n > 20 {
		t.Errorf("%d requests", n)
	}
	for _, q := range aside.Requests() {
		if !l.asked {
			t.Errorf("asked: %s %s", q.Method, q.Path)
		}
		requestText := q.Path + string(q.Body) + q.Header.Get("Cookie")
		if !l.trusted && (q.Authorization != "" || strings.Contains(requestText, canary)) {
			t.Errorf("%s %s with %q %q %q", q.Method, q.Path, q.Authorization, q.Header["Cookie"], q.Body)
		}
	}
	if l.asked && aside.Count() == 0 {
		t.Error("nobody was asked: the test shows nothing")
	}
}

// TestListElsewhere checks that a list that is redirected to another server is read from
// there, without credentials.
func TestListElsewhere(t *testing.T) {
	ca := testenv.NewCA(t)
	g, other := newGuardedRegistry(t, ca, nil), testenv.StartRegistry(t, testenv.RegistryConfig{CA: ca, PageSize: 1})
	for _, tag := range []string{"a", "b", "c"} {
		other.Push("team/app", tag, layer(tag))
	}
	other.Reset()
	access, env := g.access()
	r, _ := connect(t, access, env)
	for range 2 { // the second time the registry's challenge is known
		g.Break(&testenv.Defect{Phase: testenv.ListTags, Do: testenv.Serve, Handler: func(w http.ResponseWriter, r *http.Request, _ http.Handler) {
			http.Redirect(w, r, other.Base+r.URL.RequestURI(), http.StatusTemporaryRedirect)
		}})
		testenv.Equal(t, strings.Join(collect(t, r.Tags(t.Context())), " "), "a b c")
	}
	bare(t, other.Requests())
}
