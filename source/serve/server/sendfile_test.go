package server_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/source/serve"
	"github.com/headgate-io/headgate/source/serve/server"
)

// A connection is a ResponseWriter as that of net/http, which takes files whole.
type connection struct {
	*httptest.ResponseRecorder
	files int64 // bytes that came as parts of files
}

func (c *connection) ReadFrom(r io.Reader) (int64, error) {
	n, err := io.Copy(c.ResponseRecorder, r)
	if l, ok := r.(*io.LimitedReader); ok {
		if _, ok := l.R.(*os.File); ok {
			c.files += n
		}
	}
	return n, err
}

// TestArtifactsAreSentAsFiles has nothing stand between the file of an artifact
// and the connection, which sends it by sendfile; package listen shows the rest.
func TestArtifactsAreSentAsFiles(t *testing.T) {
	store, err := artifact.OpenStore(artifact.StoreConfig{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	const size = 9 << 20
	a, err := store.Put(t.Context(), "gitrepository/default/app", "app.tar.gz", func(w io.Writer) error {
		_, err := w.Write(make([]byte, size))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	s := &server.Server{Store: store, Controller: new(serve.Controller), Guard: tokens(t)}
	for name, tt := range map[string]struct {
		ranges string
		want   int64
	}{"all": {"", size}, "a range": {"bytes=1000-5000999", 5_000_000}} {
		r := httptest.NewRequest(http.MethodGet, "/token/0123456789abcdef-ci/"+a.Path, nil)
		if tt.ranges != "" {
			r.Header.Set("Range", tt.ranges)
		}
		w := &connection{ResponseRecorder: httptest.NewRecorder()}
		s.Handler().ServeHTTP(w, r)
		if w.Code/100 != 2 || w.files != tt.want || int64(w.Body.Len()) != tt.want {
			t.Errorf("%s: %d, %d bytes of %d as files", name, w.Code, w.files, w.Body.Len())
		}
	}
}
