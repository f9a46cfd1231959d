package oci_test

import (
	"net/url"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/source"
)

// A lure is how a registry tries to have credentials shown to somebody else, aside.
type lure struct {
	name    string
	tls     bool
	bearer  *testenv.Bearer
	realm   func(aside *testenv.Registry) string
	aside   testenv.RegistryConfig                // of the other server, on the other host name localhost
	set     func(r *rig, aside *testenv.Registry) // the trap
	spec    func(*source.OCIRepositorySpec)       // of the object
	asked   bool                                  // aside may be asked, without credentials
	trusted bool                                  // aside may see credentials
	reason  string                                // "" for success
	says    []string                              // parts of the error
}

// elsewhere is the base URL of a server under the name localhost.
func elsewhere(g *testenv.Registry) string {
	return strings.Replace(g.Base, "127.0.0.1", "localhost", 1)
}

// divert redirects one phase.
func divert(phase testenv.Phase) func(*rig, *testenv.Registry) {
	return func(r *rig, aside *testenv.Registry) {
		d := testenv.Redirect(elsewhere(aside))
		d.Phase = phase
		r.g.Break(d)
	}
}

func tokensOf(aside *testenv.Registry) string { return elsewhere(aside) + "/token" }

func anonymous(s *source.OCIRepositorySpec) { s.SecretRef = nil }

var wantsPassword = testenv.RegistryConfig{Username: "user", Password: canary}

var lures = []lure{
	{name: "layer elsewhere", set: divert(testenv.GetBlob), asked: true},
	{name: "layer elsewhere, with TLS", tls: true, set: divert(testenv.GetBlob), asked: true},
	{name: "layer elsewhere, with a token", bearer: &testenv.Bearer{}, set: divert(testenv.GetBlob), asked: true},
	{name: "head elsewhere", set: divert(testenv.HeadManifest), asked: true},
	{name: "manifest elsewhere", bearer: &testenv.Bearer{}, set: divert(testenv.GetManifest), asked: true},
	{name: "layer where a password is wanted", aside: wantsPassword, set: divert(testenv.GetBlob), asked: true, reason: authFailed, says: []string{"401", "localhost"}},
	{name: "layer where a token is wanted", aside: testenv.RegistryConfig{Username: "user", Password: canary, Bearer: &testenv.Bearer{}}, set: divert(testenv.GetBlob),
		asked: true, reason: authFailed, says: []string{"401", "localhost"}},
	{name: "layer where TLS is given up", tls: true, set: func(r *rig, _ *testenv.Registry) {
		r.g.Break(testenv.Redirect("http://localhost:1"))
	}, reason: pullFailed, says: []string{"http"}},
	{name: "layer behind a URL with a password", set: func(r *rig, aside *testenv.Registry) {
		d := testenv.Redirect(strings.Replace(elsewhere(aside), "//", "//user:"+url.QueryEscape(canary)+"@", 1))
		d.Phase = testenv.GetBlob
		r.g.Break(d)
		aside.Break(&testenv.Defect{Do: testenv.Leak, Status: 400})
	}, asked: true, trusted: true, reason: pullFailed, says: []string{"400"}},

	{name: "realm elsewhere, without credentials", tls: true, bearer: &testenv.Bearer{Anonymous: true}, aside: testenv.RegistryConfig{Bearer: &testenv.Bearer{Anonymous: true}},
		realm: tokensOf, spec: anonymous, asked: true},
	{name: "token service that repeats credentials", bearer: &testenv.Bearer{}, set: breaks(testenv.Defect{Do: testenv.Leak, Status: 400}), reason: pullFailed, says: []string{"400"}},
	{name: "token service without end", bearer: &testenv.Bearer{}, set: breaks(testenv.Defect{Do: testenv.Swell, After: 1 << 30}), reason: pullFailed, says: []string{"token", "more than"}},
	{name: "token service that stalls", bearer: &testenv.Bearer{}, set: breaks(testenv.Defect{Do: testenv.Stall, After: -1}), spec: hasty, reason: pullFailed, says: []string{"spec.timeout"}},
	{name: "tokens that are never good", bearer: &testenv.Bearer{}, set: breaks(testenv.Defect{Status: 200, Body: `{"token":"other"}`}), reason: authFailed, says: []string{"401", "check the credentials"}},
}

// breaks is a defect of the token service.
func breaks(d testenv.Defect) func(*rig, *testenv.Registry) {
	d.Phase = testenv.GetToken
	return func(r *rig, _ *testenv.Registry) { r.g.Break(&d) }
}

// Credentials are shown to the registry they are for, and what it issued to
// nobody else, whatever it says.
func TestCredentialsStay(t *testing.T) {
	for _, l := range lures {
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			l.try(t)
		})
	}
}

func (l lure) try(t *testing.T) {
	config := testenv.RegistryConfig{Username: "user", Password: canary, Bearer: l.bearer}
	if l.bearer != nil && l.bearer.Anonymous {
		config.Username, config.Password = "", ""
	}
	if l.tls {
		config.CA = testenv.NewCA(t)
		l.aside.CA = config.CA
	}
	aside := testenv.StartRegistry(t, l.aside)
	if l.realm != nil {
		config.Bearer = &testenv.Bearer{Realm: l.realm(aside), Anonymous: l.bearer != nil && l.bearer.Anonymous}
	}
	r := newRig(t, config)
	layer := testenv.TarGzip(t, text("a", "one\n"))
	r.push(layer)
	aside.Push("team/app", "latest", testenv.Manifest{Layers: []testenv.Blob{layer}})
	if l.set != nil {
		l.set(r, aside)
	}
	obj := r.object("app", l.spec)
	if l.reason == "" {
		r.stored(obj)
	} else {
		r.refused(obj, nil, l.reason, l.says...)
	}
	if n := r.g.Count(); n > 20 {
		t.Errorf("%d requests", n)
	}
	for _, q := range aside.Requests() {
		if !l.asked {
			t.Errorf("asked: %s %s", q.Method, q.Path)
		}
		said := q.Path + string(q.Body) + q.Header.Get("Cookie")
		if !l.trusted && (q.Authorization != "" || strings.Contains(said, canary)) {
			t.Errorf("%s %s with %q %q %q", q.Method, q.Path, q.Authorization, q.Header["Cookie"], q.Body)
		}
	}
	if l.asked && aside.Count() == 0 {
		t.Error("nobody was asked: the test shows nothing")
	}
}
