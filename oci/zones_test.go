package oci_test

import (
	"crypto/tls"
	"errors"
	"net/http"
	"net/url"
	"testing"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/internal/transport"
	"github.com/headgate-io/headgate/oci"
	"github.com/headgate-io/headgate/source"
)

// A registry at a public address leads nowhere that is narrower, by a redirect
// or as its token service, unless the user opens the host.
func TestZones(t *testing.T) {
	testenv.Resolve(t, "wide.example", "203.0.113.7")
	ca := testenv.NewCA(t)
	blob := testenv.Blob{Data: []byte("x")}
	storage := testenv.StartRegistry(t, testenv.RegistryConfig{})
	storage.PushBlob("team/app", blob)
	narrow := testenv.Narrows(t)
	var names []string
	for _, n := range narrow {
		names = append(names, (&url.URL{Host: n.Host}).Hostname())
	}
	issuer := testenv.StartRegistry(t, testenv.RegistryConfig{CA: ca, Names: names, Bearer: &testenv.Bearer{Anonymous: true}})
	under := func(g *testenv.Registry, host string) string {
		u, _ := url.Parse(g.Base)
		return u.Scheme + "://" + host + ":" + u.Port()
	}
	for _, n := range narrow {
		redirecting := testenv.StartRegistry(t, testenv.RegistryConfig{})
		redirecting.Break(&testenv.Defect{Phase: testenv.GetBlob, Status: http.StatusFound, Header: http.Header{"Location": {under(storage, n.Host)}}})
		naming := testenv.StartRegistry(t, testenv.RegistryConfig{CA: ca, Names: []string{"wide.example"}, Bearer: &testenv.Bearer{Realm: under(issuer, n.Host) + "/token", Anonymous: true}})
		for name, kind := range map[string]struct{ from, to *testenv.Registry }{"redirect": {redirecting, storage}, "realm": {naming, issuer}} {
			ask := func(networks *source.Networks) error {
				kind.to.Reset()
				u, _ := url.Parse(kind.from.Base)
				a := oci.Access{URL: "oci://wide.example:" + u.Port() + "/team/app", Insecure: u.Scheme == "http", Cert: ref("tls")}
				r, _ := connect(t, a, source.Env{Networks: networks, Secrets: secrets{"tls": {"ca.crt": string(ca.PEM())}}})
				content, err := r.Blob(t.Context(), blob.Descriptor())
				if err == nil {
					content.Close()
				}
				return err
			}
			var refused *transport.ZoneError
			if err := ask(nil); !errors.As(err, &refused) || refused.Metadata != n.Metadata || kind.to.Count() > 0 {
				t.Errorf("%s to %s: %v, %d requests", name, n.Host, err, kind.to.Count())
			}
			if n.Metadata {
				continue
			}
			networks, err := source.ParseNetworks(n.Host)
			if err != nil {
				t.Fatal(err)
			}
			err = ask(networks)
			reached := kind.to.Count() > 0 || errors.As(err, new(*tls.CertificateVerificationError)) // which has names alone
			if errors.As(err, &refused) || !reached {
				t.Errorf("%s to %s, which the user opens: %v, %d requests", name, n.Host, err, kind.to.Count())
			}
		}
	}
}

// An entry of the Secret opens a host, too; not a metadata service.
func TestZonesOfEntries(t *testing.T) {
	testenv.Resolve(t, "wide.example", "203.0.113.7")
	testenv.Resolve(t, "storage.example", "10.0.0.7")
	for host, opens := range map[string]bool{"storage.example": true, "169.254.169.254": false} {
		storage := testenv.StartRegistry(t, testenv.RegistryConfig{})
		d := storage.PushBlob("team/app", testenv.Blob{Data: []byte("x")})
		to, _ := url.Parse(storage.Base)
		g := testenv.StartRegistry(t, testenv.RegistryConfig{})
		g.Break(&testenv.Defect{Phase: testenv.GetBlob, Status: http.StatusFound, Header: http.Header{"Location": {"http://" + host + ":" + to.Port()}}})
		at, _ := url.Parse(g.Base)
		env := source.Env{Secrets: secrets{"reg": {".dockerconfigjson": dockerconfig(host, "ann", password)}}}
		r, _ := connect(t, oci.Access{URL: "oci://wide.example:" + at.Port() + "/team/app", Insecure: true, Secret: ref("reg")}, env)
		content, err := r.Blob(t.Context(), d)
		if (err == nil) != opens || !opens && !errors.As(err, new(*transport.ZoneError)) {
			t.Errorf("%s: %v", host, err)
		}
		if err == nil {
			content.Close()
		}
	}
}
