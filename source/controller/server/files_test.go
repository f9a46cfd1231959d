package server_test

import (
	"context"
	"net/http/httptest"
	"testing"
)

// TestFilesLeft has whoever leaves wait no longer for the lists that others ask for.
func TestFilesLeft(t *testing.T) {
	r := newRig(t, false)
	defer r.server.MakeFiles()()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	w := httptest.NewRecorder()
	r.server.Handler().ServeHTTP(w, httptest.NewRequestWithContext(ctx, "GET", "/api/v1/sources/gitrepository/shop/app/files", nil))
	if w.Code != 503 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}
