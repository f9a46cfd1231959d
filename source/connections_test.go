package source_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/headgate-io/headgate/source"
)

// Connections keeps a limited number of transports, and none after Close.
func TestConnectionsBounded(t *testing.T) {
	var c source.Connections
	created := 0
	use := func(key string) bool {
		before := created
		c.Transport(key, func() *http.Transport { created++; return new(http.Transport) })
		return created > before
	}
	for i := range 200 {
		if !use(fmt.Sprint(i)) || use(fmt.Sprint(i)) {
			t.Fatal("the transport made last is not kept")
		}
	}
	created = 0
	for i := range 200 {
		use(fmt.Sprint(i))
	}
	if created < 200-64 {
		t.Errorf("%d of 200 were kept", 200-created)
	}
	c.Close()
	if !use("199") {
		t.Error("what was closed is kept")
	}
}
