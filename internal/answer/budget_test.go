package answer_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

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

// A line is the writer of a request whose body goes on when more is sent, and
// ends with the deadline of reads.
type line struct {
	http.ResponseWriter
	*io.PipeReader
}

func (l line) SetReadDeadline(time.Time) error { return l.CloseWithError(os.ErrDeadlineExceeded) }

// A slow body is one of a budget that does not go on, with what became of it.
type slow struct {
	io.Closer
	more  io.Closer
	ended chan error
}

// begin sends size bytes of a body that is longer.
func begin(t *testing.T, b *answer.Budget, size int) slow {
	t.Helper()
	r, w := io.Pipe()
	body := b.Count(line{httptest.NewRecorder(), r}, r)
	s := slow{body, w, make(chan error, 1)}
	go func() {
		_, err := io.Copy(io.Discard, body)
		s.ended <- err
	}()
	if _, err := w.Write(make([]byte, size)); err != nil {
		t.Fatal(err)
	}
	return s
}

// TestSlowBodies shows that bodies on their way are bounded together, and that
// who is slow keeps nobody out: of those that are too much the first give way.
func TestSlowBodies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b answer.Budget
		ask := func(size int) error {
			r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(strings.Repeat("x", size)))
			return b.Body(httptest.NewRecorder(), r, 2<<20, func([]byte) error { return nil })
		}
		var all []slow
		for range 64 {
			all = append(all, begin(t, &b, 1<<20))
			synctest.Wait() // until it is counted
		}
		if err := ask(4 << 10); err != nil {
			t.Errorf("a small body: %v", err)
		}
		if err := ask(2 << 20); err != nil {
			t.Errorf("a large body: %v", err)
		}
		synctest.Wait()
		for i, s := range all {
			select {
			case err := <-s.ended:
				if i >= 2 || !errors.Is(err, answer.ErrFull) {
					t.Errorf("slow body %d: %v", i, err)
				}
			default:
				if i < 2 {
					t.Errorf("slow body %d did not give way", i)
				}
			}
		}
		for range 2 { // there is room again
			all = append(all, begin(t, &b, 1<<20))
			synctest.Wait()
		}
		select {
		case err := <-all[2].ended:
			t.Errorf("a slow body gave way for nothing: %v", err)
		default:
		}
		all = append(all, begin(t, &b, 1))
		for _, s := range all {
			s.more.Close()
			synctest.Wait()
			s.Close()
		}
	})
}

// Bodies that have arrived give way to nobody: it is the one that is added then.
func TestBodiesThatArrived(t *testing.T) {
	var b answer.Budget
	var all []io.Closer
	for i := range 65 {
		body := b.Count(httptest.NewRecorder(), strings.NewReader(strings.Repeat("x", 1<<20)))
		if _, err := io.Copy(io.Discard, body); (err != nil) != (i == 64) || i == 64 && !errors.Is(err, answer.ErrFull) {
			t.Fatalf("body %d: %v", i, err)
		}
		all = append(all, body)
	}
	for _, body := range all {
		body.Close()
	}
	body := b.Count(httptest.NewRecorder(), strings.NewReader(strings.Repeat("x", 65<<20)))
	if _, err := io.Copy(io.Discard, body); err != nil {
		t.Errorf("one that is alone: %v", err)
	}
	body.Close()
}
