package tester

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/headgate-io/headgate/internal/answer"
	"github.com/headgate-io/headgate/rollout/tester/api"
	"github.com/headgate-io/headgate/rollout/tester/run"
)

// The wire of the k6 webhook: every failure is 400 with a text.
const (
	launchDelay   = 2 * time.Minute  // after a failure, in which further calls fail: metadata min_failure_delay
	launchStart   = 20 * time.Second // for a test that nobody waits for to start
	launchStarted = "output:"        // what k6 writes then
	maxFailures   = 10000
	launchActor   = "its caller, who left" // of the cancelling of a run
)

// launches are what /launch-test remembers. Its zero value is ready.
type launches struct {
	mu      sync.Mutex
	failed  map[api.Key]time.Time // until when calls fail, by namespace, name and phase (as Gate)
	waiting map[crowd]int
}

// A crowd is all callers that wait for the same k6 run: a digest of what they
// asked for; zero for none.
type crowd [sha256.Size]byte

// A launch is a call of the k6 webhook.
type launch struct {
	key   api.Key       // by which its failure is remembered
	delay time.Duration // for how long
}

// serveLauncherHealth answers GET /health.
func (s *Server) serveLauncherHealth(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		s.refuseText(w, r, answer.WrongMethod(w, http.MethodGet))
		return
	}
	answer.Text(w, http.StatusOK, "Good to go!")
}

// serveLaunch answers POST /launch-test. Keys of metadata for chats
// (slack_channels, notification_context) have no effect.
func (s *Server) serveLaunch(w http.ResponseWriter, r *http.Request) {
	s.serveJob(w, r, (*Server).launchJob)
}

// launchJob reads a call.
func (s *Server) launchJob(w http.ResponseWriter, r *http.Request) (*job, error) {
	if r.Method != http.MethodPost {
		return nil, answer.WrongMethod(w, http.MethodPost)
	}
	p, c, err := s.payload(w, r, nil)
	if err != nil {
		return nil, err
	}
	if p.Metadata == nil {
		p.Metadata = metadata{}
	}
	p.Metadata[typeKey] = "k6"
	if err := c.Run(p.Namespace, "k6"); err != nil {
		return nil, err
	}
	for _, required := range []struct{ name, value string }{
		{"name", p.Name}, {"namespace", p.Namespace}, {"phase", p.Phase}, {"metadata script", p.Metadata["script"]},
	} {
		if required.value == "" {
			return nil, answer.Refuse(http.StatusBadRequest, "%s is missing in payload", required.name)
		}
	}
	l := &launch{key: api.Key{Namespace: p.Namespace, Name: p.Name, Gate: p.Phase}}
	if l.delay, err = api.ParseInterval(p.Metadata["min_failure_delay"], launchDelay); err != nil {
		return nil, answer.Refuse(http.StatusBadRequest, "metadata min_failure_delay: %w", err)
	}
	j, err := s.prepare(p, c)
	if err != nil {
		return nil, err
	}
	if left := s.launches.left(l.key); left > 0 {
		return nil, answer.Refuse(http.StatusBadRequest, "the last test failed; further calls fail for %s (min_failure_delay)", left.Round(time.Second))
	}
	j.launch = l
	return j, nil
}

// launched answers for a test that nobody waits for when it has started.
func (s *Server) launched(w http.ResponseWriter, r *http.Request, j *job, state api.Run) {
	kept := final(state.State) // a failure that was owed
	limited, cancel := context.WithTimeout(r.Context(), launchStart)
	defer cancel()
	seen := &lookout{mark: []byte(launchStarted), found: cancel}
	s.Runs.Output(limited, state.ID, true, seen)
	if now, err := s.Runs.Run(state.ID); err == nil {
		state = now
	}
	s.verdict(w, r, j, state, kept)
}

// retryLaunch says that a call is to be repeated after the time that half of
// the last ones took.
func (s *Server) retryLaunch(w http.ResponseWriter) {
	var took []int64
	for _, other := range s.Runs.Runs(api.Filter{Type: "k6", Limit: 100}) {
		if final(other.State) {
			took = append(took, other.Duration)
		}
	}
	if len(took) > 0 {
		slices.Sort(took)
		w.Header().Set("Retry-After", strconv.FormatInt(max(1, took[len(took)/2]/1000), 10))
	}
}

// left returns how long calls still fail.
func (l *launches) left(k api.Key) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Until(l.failed[k])
}

// enter and leave count who waits for what a request asks for. Leave reports
// whether nobody does any more.
func (l *launches) enter(r run.Request) crowd {
	text, _ := json.Marshal([]any{r.Namespace, r.Name, r.Checksum, r.Metadata}) // cannot fail: they are texts
	c := crowd(sha256.Sum256(text))
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.waiting == nil {
		l.waiting = map[crowd]int{}
	}
	l.waiting[c]++
	return c
}

func (l *launches) leave(c crowd) (last bool) {
	if c == (crowd{}) {
		return true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiting[c]--
	if last = l.waiting[c] == 0; last {
		delete(l.waiting, c)
	}
	return last
}

// again has a caller of the k6 webhook wait for a new run when that which it got
// was ending, for those who had waited for it before had left.
func (s *Server) again(r *http.Request, p *pending) bool {
	if p.launch == nil || r.Context().Err() != nil {
		return false
	}
	state, ended := p.Run()
	if !ended || state.State != api.Cancelled || !strings.HasPrefix(state.Reason, "cancelled by "+launchActor) {
		return false
	}
	next, err := s.Runs.Join(p.request, p.task)
	if err == nil {
		p.Pending = next
	}
	return err == nil
}

// remember remembers how a test ended.
func (l *launches) remember(call launch, failed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !failed {
		delete(l.failed, call.key)
		return
	}
	now := time.Now()
	if l.failed == nil {
		l.failed = map[api.Key]time.Time{}
	}
	if len(l.failed) >= maxFailures {
		for old, until := range l.failed {
			if now.After(until) {
				delete(l.failed, old)
			}
		}
	}
	if len(l.failed) < maxFailures {
		l.failed[call.key] = now.Add(call.delay)
	}
}

// A lookout looks for a mark in what is written to it.
type lookout struct {
	mark  []byte
	found func()
	tail  []byte
}

func (l *lookout) Write(p []byte) (int, error) {
	l.tail = append(l.tail, p...)
	if bytes.Contains(l.tail, l.mark) {
		l.found()
	}
	l.tail = bytes.Clone(l.tail[max(0, len(l.tail)-len(l.mark)):])
	return len(p), nil
}
