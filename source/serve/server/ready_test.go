package server_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/headgate-io/headgate/source/serve"
)

// A heldFeed has its objects when a request is there.
type heldFeed struct {
	*rig
	asked chan struct{}
}

func (f heldFeed) Follow(ctx context.Context, set func(serve.Desired)) error {
	<-f.asked
	return f.rig.Follow(ctx, set)
}

// TestAskedBeforeDocumentsAreRead asks for an object before the feed has it: the
// answer comes when it does.
func TestAskedBeforeDocumentsAreRead(t *testing.T) {
	answered := make(chan *httptest.ResponseRecorder, 1)
	newRig(t, false, func(r *rig) {
		feed := heldFeed{r, make(chan struct{})}
		r.server.Controller.Feed = feed
		handler := r.server.Handler()
		go func() {
			close(feed.asked)
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "http://localhost/api/v1/sources/gitrepository/shop/app", nil))
			answered <- w
		}()
	})
	if w := <-answered; w.Code != http.StatusOK {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// TestEndBeforeDocumentsAreRead ends a server that was asked and never had documents.
func TestEndBeforeDocumentsAreRead(t *testing.T) {
	r := newRig(t, false)
	r.server.Controller = new(serve.Controller)
	answered := make(chan int, 1)
	go func() {
		w := httptest.NewRecorder()
		r.server.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "http://localhost/api/v1/sources", nil))
		answered <- w.Code
	}()
	r.server.Shutdown(t.Context())
	if code := <-answered; code != http.StatusServiceUnavailable {
		t.Errorf("%d", code)
	}
}
