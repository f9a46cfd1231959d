package answer_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/headgate-io/headgate/internal/answer"
)

// A stuck answer is one that nobody takes until it is let go.
type stuck struct {
	http.ResponseWriter
	begun func()
	free  chan struct{}
}

func (s stuck) WriteHeader(int) {
	s.begun()
	<-s.free
}

// TestSlowReadersOfLists shows that answers in memory are bounded together, whoever reads them.
func TestSlowReadersOfLists(t *testing.T) {
	var b answer.Budget
	long, short := strings.Repeat("x", 33<<20), "y"
	ask := func(text string) error { return b.JSON(httptest.NewRecorder(), http.StatusOK, text) }

	var begun, ended sync.WaitGroup
	begun.Add(1)
	free := make(chan struct{})
	ended.Go(func() {
		if err := b.JSON(stuck{httptest.NewRecorder(), begun.Done, free}, http.StatusOK, long); err != nil {
			t.Error(err)
		}
	})
	begun.Wait()
	refused, is := errors.AsType[*answer.Refusal](ask(long))
	if !is || refused.Status != http.StatusServiceUnavailable {
		t.Errorf("a second long list: %v", refused)
	}
	if err := ask(short); err != nil {
		t.Errorf("a short answer: %v", err)
	}
	close(free)
	ended.Wait()
	if err := ask(long + long); err != nil {
		t.Errorf("when nobody reads: %v", err)
	}
}

// TestSlowBodies shows that bodies on their way are bounded together, and that
// small ones arrive all the same.
func TestSlowBodies(t *testing.T) {
	var b answer.Budget
	ask := func(size int) error {
		r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(strings.Repeat("x", size)))
		return b.Body(httptest.NewRecorder(), r, 1<<20, func([]byte) error { return nil })
	}
	var slow []io.Closer
	for range 64 {
		body := b.Count(strings.NewReader(strings.Repeat("x", 1<<20)))
		if _, err := io.ReadAll(body); err != nil {
			t.Fatal(err)
		}
		slow = append(slow, body)
	}
	if err := ask(5 << 10); !errors.Is(err, answer.ErrFull) {
		t.Errorf("a body that does not fit: %v", err)
	}
	if err := ask(4 << 10); err != nil {
		t.Errorf("a small body: %v", err)
	}
	for _, body := range slow {
		body.Close()
	}
	if err := ask(1 << 20); err != nil {
		t.Errorf("when all have arrived: %v", err)
	}
}
