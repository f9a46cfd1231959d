package chart

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/internal/transport"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/sourcetest"
)

// annsHeader is the Authorization header for the user name and password in the Secret.
var annsHeader = "Basic " + base64.StdEncoding.EncodeToString([]byte("ann:"+password))

// receivedAuth returns the Authorization headers that a server received in requests for charts.
func receivedAuth(c *testenv.Charts) (all []string) {
	for _, r := range c.Requests() {
		all = append(all, r.Authorization)
	}
	return all
}

// TestCredentials places charts on several servers, and checks which credentials each
// server receives.
func TestCredentials(t *testing.T) {
	ca := testenv.NewCA(t)
	never, always := [2]string{"", ""}, [2]string{annsHeader, annsHeader}
	for name, row := range map[string]struct {
		home, other testenv.ChartsConfig
		url         func(repo, other *testenv.Charts) string
		redirect    bool      // repo redirects to other
		onward      bool      // other redirects to a third server
		away        [2]string // credentials that the last server receives without and with passCredentials
	}{
		"relative":           {url: func(repo, _ *testenv.Charts) string { return "app.tgz" }, away: always},
		"from the root":      {url: func(repo, _ *testenv.Charts) string { return "/charts/app.tgz" }, away: always},
		"absolute":           {url: func(repo, _ *testenv.Charts) string { return repo.URLOf("app.tgz") }, away: always},
		"absolute, over TLS": {home: testenv.ChartsConfig{CA: ca}, url: func(repo, _ *testenv.Charts) string { return repo.URLOf("app.tgz") }, away: always},
		"other port":         {url: func(_, other *testenv.Charts) string { return other.URLOf("app.tgz") }, away: [2]string{"", annsHeader}},
		"without a scheme":   {url: func(_, other *testenv.Charts) string { return strings.TrimPrefix(other.URLOf("app.tgz"), "http:") }, away: [2]string{"", annsHeader}},
		"other host": {url: func(repo, _ *testenv.Charts) string {
			return strings.Replace(repo.URLOf("app.tgz"), "127.0.0.1", "localhost", 1)
		}, away: [2]string{"", annsHeader}},
		"to TLS":                   {other: testenv.ChartsConfig{CA: ca}, url: func(_, other *testenv.Charts) string { return other.URLOf("app.tgz") }, away: [2]string{"", annsHeader}},
		"leads from https to http": {home: testenv.ChartsConfig{CA: ca}, url: func(_, other *testenv.Charts) string { return other.URLOf("app.tgz") }, away: never},
		"redirect":                 {url: func(*testenv.Charts, *testenv.Charts) string { return "app.tgz" }, redirect: true, away: never},
		"redirect of the other":    {url: func(_, other *testenv.Charts) string { return other.URLOf("app.tgz") }, onward: true, away: never},
	} {
		for i, pass := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, passCredentials %v", name, pass), func(t *testing.T) {
				repo, other, third := testenv.StartCharts(t, row.home), testenv.StartCharts(t, row.other), testenv.StartCharts(t, testenv.ChartsConfig{})
				data := repo.Put(testenv.ChartVersion{Name: "app", Version: "1.0.0", File: "app.tgz", URLs: []string{row.url(repo, other)}})
				other.PutFile("app.tgz", data)
				third.PutFile("app.tgz", data)
				last := repo
				switch {
				case row.redirect:
					repo.Break(testenv.Redirect(other.Base))
					last = other
				case row.onward:
					other.Break(testenv.Redirect(third.Base))
					last = third
				case strings.Contains(row.url(repo, other), other.Host):
					last = other
				}
				b := newOpenerTest(t, repo.URL(), repo)
				b.opener.env.Secrets.(sourcetest.Secrets)["default/ca"] = source.Secret{Data: map[string][]byte{"ca.crt": ca.PEM()}}
				b.repo.Spec.SecretRef, b.repo.Spec.CertSecretRef, b.repo.Spec.PassCredentials = ref("user"), ref("ca"), pass
				if _, got, err := b.get("app", "1.0.0"); err != nil || !bytes.Equal(got, data) {
					t.Fatal(err)
				}
				if got := receivedAuth(last); len(got) != 1 || got[0] != row.away[i] {
					t.Errorf("the server was shown %q, want %q", got, row.away[i])
				}
				if len(receivedAuth(third)) > 0 && last != third {
					t.Error("the third server was asked")
				}
			})
		}
	}
}

// TestCertificate sends the client certificate to the repository only.
func TestCertificate(t *testing.T) {
	ca := testenv.NewCA(t)
	repo, other := testenv.StartCharts(t, testenv.ChartsConfig{CA: ca, Mutual: true}), testenv.StartCharts(t, testenv.ChartsConfig{CA: ca, Mutual: true})
	data := repo.Put(testenv.ChartVersion{Name: "app", Version: "1.0.0"})
	repo.Put(testenv.ChartVersion{Name: "app", Version: "2.0.0", URLs: []string{other.URLOf("app-2.0.0.tgz")}})
	b := newOpenerTest(t, repo.URL(), repo)
	cert, key := ca.Client("ann")
	secrets := b.opener.env.Secrets.(sourcetest.Secrets)
	secrets["default/cert"] = source.Secret{Data: map[string][]byte{"ca.crt": ca.PEM(), "tls.crt": cert, "tls.key": key}}
	b.repo.Spec.CertSecretRef = ref("cert")
	if _, got, err := b.get("app", "1.0.0"); err != nil || !bytes.Equal(got, data) || repo.Requests()[0].Certificate != "ann" {
		t.Error(err)
	}
	for _, pass := range []bool{false, true} {
		b.repo.Spec.PassCredentials = pass
		_, _, err := b.get("app", "2.0.0")
		b.fails(err, source.StepFetch, "ChartPullError", false, other.URLOf("app-2.0.0.tgz"))
		if n := other.Count(); n > 0 {
			t.Errorf("%d requests with a certificate of somebody", n)
		}
	}
	b.repo.Spec.CertSecretRef = nil
	_, _, err := b.get("app", "1.0.0")
	b.fails(err, source.StepFetch, "AuthenticationFailed", false, "spec.certSecretRef")
}

func TestRefusedCredentials(t *testing.T) {
	c := testenv.StartCharts(t, testenv.ChartsConfig{Username: "ann", Password: "other"})
	c.Put(testenv.ChartVersion{Name: "app", Version: "1.0.0"})
	repo := testenv.StartCharts(t, testenv.ChartsConfig{})
	repo.Put(testenv.ChartVersion{Name: "app", Version: "1.0.0", URLs: []string{c.URLOf("app-1.0.0.tgz")}})
	for want, server := range map[string]*testenv.Charts{
		"401 Unauthorized: check the user name and password": c, "were sent to " + repo.Host + " only: spec.passCredentials": repo,
	} {
		b := newOpenerTest(t, server.URL(), server)
		b.repo.Spec.SecretRef = ref("user")
		_, _, err := b.get("app", "1.0.0")
		b.fails(err, source.StepFetch, "AuthenticationFailed", false, want)
	}
}

// TestURLs resolves URLs of an index.
func TestURLs(t *testing.T) {
	for base, rows := range map[string]map[string]string{
		"https://h/charts?token=x": {
			"app.tgz": "https://h/charts/app.tgz?token=x", "sub/app.tgz": "https://h/charts/sub/app.tgz?token=x", "./a.tgz": "https://h/charts/a.tgz?token=x",
			"../app.tgz": "https://h/app.tgz?token=x", "/app.tgz": "https://h/app.tgz?token=x", "app.tgz?v=1": "https://h/charts/app.tgz?v=1&token=x",
			"//other/app.tgz": "https://other/app.tgz", "https://h/x/app.tgz": "https://h/x/app.tgz", "https://other/app.tgz?v=1": "https://other/app.tgz?v=1",
			"app.tgz#part": "https://h/charts/app.tgz?token=x", " app.tgz\n": "https://h/charts/app.tgz?token=x", "a%2Fb.tgz": "https://h/charts/a%2Fb.tgz?token=x",
			"oci://r/team/app:1.0.0": "oci://r/team/app:1.0.0", "HTTPS://h/a": "https://h/a", "a b.tgz": "https://h/charts/a%20b.tgz?token=x",
		},
		"http://h": {"app.tgz": "http://h/app.tgz", "": "http://h/", "?a=b": "http://h/?a=b"},
	} {
		b := newOpenerTest(t, base, nil)
		b.text = []byte{}
		u := b.open().(*chartRepository)
		for text, want := range rows {
			if got, err := u.resolve(text); err != nil || got.String() != want {
				t.Errorf("%s of %s: %v, %v, want %s", text, base, got, err, want)
			}
		}
		for _, text := range []string{"file:///etc/passwd", "ftp://h/a", "javascript:alert(1)", "C:\\a.tgz", "data:,a", "http:a.tgz", "https://", "http:///a", "%zz", "a\x00b",
			"http://h\x1b[31m/", strings.Repeat("a", maxAddress+1), "git+ssh://h/a", "http://u:cAnArY@h:port/"} {
			if got, err := u.resolve(text); err == nil || strings.ContainsAny(err.Error(), "\x00\x1b\n") || strings.Contains(err.Error(), "cAnArY") {
				t.Errorf("%q: %v, %v", text, got, err)
			}
		}
	}
}

// TestEveryURL tries one URL after the other.
func TestEveryURL(t *testing.T) {
	c := testenv.StartCharts(t, testenv.ChartsConfig{})
	bad := c.Put(testenv.ChartVersion{Name: "bad", Version: "1.0.0"})
	urls := []string{"ftp://h/a", "missing.tgz", "bad-1.0.0.tgz", "app-1.0.0.tgz", "never.tgz"}
	data := c.Put(testenv.ChartVersion{Name: "app", Version: "1.0.0", URLs: urls})
	c.Put(testenv.ChartVersion{Name: "app", Version: "2.0.0", URLs: append(urls[:3:3], "http://user:cAnArY@127.0.0.1:1/x?token=cAnArY")})
	b := newOpenerTest(t, c.URL(), c)
	if _, got, err := b.get("app", "1.0.0"); err != nil || !bytes.Equal(got, data) || bytes.Equal(got, bad) || c.Count(testenv.GetChart) != 3 {
		t.Error(err, c.Count(testenv.GetChart))
	}
	_, _, err := b.get("app", "2.0.0")
	b.fails(err, source.StepFetch, "ChartPullError", false, "chart app 2.0.0: ", `scheme "ftp"`, c.URLOf("missing.tgz")+": 404", c.URLOf("bad-1.0.0.tgz")+": it is not what the index promises", "http://127.0.0.1:1/x")
}

// TestUserInURL sends the user information in a URL of the index to the server of that URL
// only; it does not replace the Secret.
func TestUserInURL(t *testing.T) {
	repo, other := testenv.StartCharts(t, testenv.ChartsConfig{}), testenv.StartCharts(t, testenv.ChartsConfig{})
	at := strings.Replace(other.URLOf("app.tgz"), "http://", "http://bob:cAnArY-too@", 1)
	data := repo.Put(testenv.ChartVersion{Name: "app", Version: "1.0.0", URLs: []string{at}})
	other.PutFile("app.tgz", data)
	b := newOpenerTest(t, repo.URL(), repo)
	b.repo.Spec.SecretRef = ref("user")
	bobs := "Basic " + base64.StdEncoding.EncodeToString([]byte("bob:cAnArY-too"))
	for i, want := range []string{bobs, annsHeader} {
		b.repo.Spec.PassCredentials = i == 1
		other.Reset()
		if _, _, err := b.get("app", "1.0.0"); err != nil || receivedAuth(other)[0] != want {
			t.Errorf("shown %q, want %q: %v", receivedAuth(other), want, err)
		}
	}
	other.RemoveFile("app.tgz")
	_, _, err := b.get("app", "1.0.0")
	b.fails(err, source.StepFetch, "ChartPullError", false, other.URLOf("app.tgz"))
	if !slices.Contains(b.opener.secretReader.Values(), "cAnArY-too") {
		t.Error("the password may show")
	}
}

// TestTLSIsNotGivenUp requires a digest for a chart that is fetched without TLS.
func TestTLSIsNotGivenUp(t *testing.T) {
	ca := testenv.NewCA(t)
	repo, other := testenv.StartCharts(t, testenv.ChartsConfig{CA: ca}), testenv.StartCharts(t, testenv.ChartsConfig{})
	other.PutFile("app.tgz", repo.Put(testenv.ChartVersion{Name: "app", Version: "1.0.0", URLs: []string{other.URLOf("app.tgz")}, Entry: map[string]any{"digest": nil}}))
	b := newOpenerTest(t, repo.URL(), repo)
	_, _, err := b.get("app", "1.0.0")
	b.fails(err, source.StepFetch, "ChartPullError", false, "leads from https to http")
	if other.Count() > 0 {
		t.Error("the server was asked")
	}
}

// TestZones leads from a repository in a wide network to a narrower one.
func TestZones(t *testing.T) {
	inside := testenv.StartCharts(t, testenv.ChartsConfig{})
	g := testenv.StartRegistry(t, testenv.RegistryConfig{})
	for at, rows := range map[string]map[string]bool{ // whether a request is sent to the address
		"http://203.0.113.1/charts": {inside.URLOf("app.tgz"): false, "http://10.1.2.3/app.tgz": false, "http://[fd00::1]/app.tgz": false, "http://169.254.169.254/latest": false, "http://localhost:1/app.tgz": false,
			"http://[::ffff:127.0.0.1]:1/a": false, "oci://" + g.Host + "/team/app:1.0.0": false},
		"http://10.1.1.1/charts": {inside.URLOf("app.tgz"): false, "oci://" + g.Host + "/team/app:1.0.0": false},
		inside.URL():             {strings.Replace(inside.URLOf("app.tgz"), "127.0.0.1", "localhost", 1): true},
	} {
		for url, allowed := range rows {
			inside.Reset()
			g.Reset()
			b := newOpenerTest(t, at, nil)
			b.text = []byte(fmt.Sprintf("apiVersion: v1\nentries:\n  app:\n  - name: app\n    version: 1.0.0\n    urls: ['%s']\n", url))
			_, _, err := b.get("app", "1.0.0")
			if refused := err != nil && strings.Contains(err.Error(), "may not send us"); refused == allowed || (inside.Count()+g.Count() > 0) != allowed {
				t.Errorf("%s to %s: %v", at, url, err)
			}
			if err != nil && !allowed {
				b.fails(err, source.StepFetch, "ChartPullError", false)
			}
		}
	}
}

// TestZonesOfIndexes: an index at a public address leads to no narrower network, by its
// charts, their redirects, or its own, unless the user allows the host.
func TestZonesOfIndexes(t *testing.T) {
	testenv.Resolve(t, "wide.example", "203.0.113.7")
	withHost := func(text, host string) string {
		u, _ := url.Parse(text)
		u.Host = host + ":" + u.Port()
		return u.String()
	}
	inside := testenv.StartCharts(t, testenv.ChartsConfig{})
	for _, n := range testenv.PrivateHosts(t) {
		named := testenv.StartCharts(t, testenv.ChartsConfig{})
		inside.PutFile("app.tgz", named.Put(testenv.ChartVersion{Name: "app", Version: "1.0.0", URLs: []string{withHost(inside.URLOf("app.tgz"), n.Host)}}))
		sent := testenv.StartCharts(t, testenv.ChartsConfig{})
		sent.Put(testenv.ChartVersion{Name: "app", Version: "1.0.0", File: "app.tgz", URLs: []string{"app.tgz"}})
		index := sent.Index()
		sent.Break(&testenv.Defect{Status: http.StatusFound, Header: http.Header{"Location": {withHost(inside.URLOf("app.tgz"), n.Host)}}})
		for name, server := range map[string]*testenv.Charts{"chart": named, "redirect": sent} {
			b := newOpenerTest(t, withHost(server.URL(), "wide.example"), named)
			if server == sent {
				b.text = index
			}
			inside.Reset()
			_, _, err := b.get("app", "1.0.0")
			var refused *transport.ZoneError
			if !errors.As(err, &refused) || refused.Metadata != n.Metadata || inside.Count() > 0 {
				t.Errorf("%s to %s: %v, %d requests", name, n.Host, err, inside.Count())
			}
			if n.Metadata {
				continue
			}
			if b.opener.env.Networks, err = source.ParseNetworks(n.Host); err != nil {
				t.Fatal(err)
			}
			if _, _, err := b.get("app", "1.0.0"); errors.As(err, &refused) || inside.Count() == 0 {
				t.Errorf("%s to %s, which the user opens: %v", name, n.Host, err)
			}
		}
	}
}
