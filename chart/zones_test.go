package chart

import (
	"errors"
	"net/http"
	"net/url"
	"testing"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/internal/transport"
	"github.com/headgate-io/headgate/source"
)

// An index at a public address leads nowhere that is narrower: by its charts,
// their redirects, or its own; unless the user opens the host.
func TestZonesOfIndexes(t *testing.T) {
	testenv.Resolve(t, "wide.example", "203.0.113.7")
	under := func(text, host string) string {
		u, _ := url.Parse(text)
		u.Host = host + ":" + u.Port()
		return u.String()
	}
	inside := testenv.StartCharts(t, testenv.ChartsConfig{})
	for _, n := range testenv.Narrows(t) {
		named := testenv.StartCharts(t, testenv.ChartsConfig{})
		inside.PutFile("app.tgz", named.Put(testenv.ChartVersion{Name: "app", Version: "1.0.0", URLs: []string{under(inside.URLOf("app.tgz"), n.Host)}}))
		sent := testenv.StartCharts(t, testenv.ChartsConfig{})
		sent.Put(testenv.ChartVersion{Name: "app", Version: "1.0.0", File: "app.tgz", URLs: []string{"app.tgz"}})
		index := sent.Index()
		sent.Break(&testenv.Defect{Status: http.StatusFound, Header: http.Header{"Location": {under(inside.URLOf("app.tgz"), n.Host)}}})
		for name, home := range map[string]*testenv.Charts{"chart": named, "redirect": sent} {
			b := newBench(t, under(home.URL(), "wide.example"), named)
			if home == sent {
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
			if b.s.env.Networks, err = source.ParseNetworks(n.Host); err != nil {
				t.Fatal(err)
			}
			if _, _, err := b.get("app", "1.0.0"); errors.As(err, &refused) || inside.Count() == 0 {
				t.Errorf("%s to %s, which the user opens: %v", name, n.Host, err)
			}
		}
	}
}
