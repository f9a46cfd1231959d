package exchange_test

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/internal/transport"
	"github.com/headgate-io/headgate/source/login/internal/exchange"
)

// A token service leads nowhere.
func TestZones(t *testing.T) {
	testenv.Resolve(t, "wide.example", "203.0.113.7")
	var asked int
	target := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked++ }))
	defer target.Close()
	to, _ := url.Parse(target.URL)
	for _, n := range testenv.Narrows(t) {
		from := httptest.NewServer(http.RedirectHandler("http://"+n.Host+":"+to.Port(), http.StatusFound))
		at, _ := url.Parse(from.URL)
		client := exchange.Client(transport.Client(transport.Config{}))
		resp, err := client.Get("http://wide.example:" + at.Port())
		if err == nil {
			resp.Body.Close()
		}
		if err == nil || asked > 0 {
			t.Errorf("%s: %v, %d requests", n.Host, err, asked)
		}
		from.Close()
	}
}
