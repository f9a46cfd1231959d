package tester

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

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
	failed  map[api.Key]time.Time     // until when calls fail, by namespace, name and phase (as Gate)
	waiting map[[sha256.Size]byte]int // callers that wait for a k6 run, by what they asked for
}

// serveLauncherHealth answers GET /health.
func (s *Server) serveLauncherHealth(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		s.refuseText(w, r, wrongMethod(w, http.MethodGet))
		return
	}
	text(w, http.StatusOK, "Good to go!")
}

// serveLaunch answers POST /launch-test. Keys of metadata for chats
// (slack_channels, notification_context) have no effect.
func (s *Server) serveLaunch(w http.ResponseWriter, r *http.Request) {
	j, key, err := s.launchJob(w, r)
	if err != nil {
		s.refuseTask(w, r, err)
		return
	}
	if j.request.Waits {
		s.launchWait(w, r, j, key)
	} else {
		s.launchStart(w, r, j, key)
	}
}

// launchJob reads a call. The key is what failures are remembered by.
func (s *Server) launchJob(w http.ResponseWriter, r *http.Request) (*job, api.Key, error) {
	if r.Method != http.MethodPost {
		return nil, api.Key{}, wrongMethod(w, http.MethodPost)
	}
	p, c, err := s.payload(w, r)
	if err != nil {
		return nil, api.Key{}, err
	}
	key := api.Key{Namespace: p.Namespace, Name: p.Name, Gate: p.Phase}
	for _, required := range []struct{ name, value string }{
		{"name", p.Name}, {"namespace", p.Namespace}, {"phase", p.Phase}, {"metadata script", p.Metadata["script"]},
	} {
		if required.value == "" {
			return nil, key, refuse(http.StatusBadRequest, "%s is missing in payload", required.name)
		}
	}
	p.Metadata[typeKey] = "k6"
	delay, err := api.ParseInterval(p.Metadata["min_failure_delay"], launchDelay)
	if err != nil {
		return nil, key, refuse(http.StatusBadRequest, "metadata min_failure_delay: %w", err)
	}
	j, err := s.prepare(p, c)
	if err != nil {
		return nil, key, err
	}
	j.delay = delay
	if left := s.launches.left(key); left > 0 {
		return nil, key, refuse(http.StatusBadRequest, "the last test failed; further calls fail for %s (min_failure_delay)", left.Round(time.Second))
	}
	return j, key, nil
}

// launchWait answers with how the run ended. When its last caller has left it
// is cancelled.
func (s *Server) launchWait(w http.ResponseWriter, r *http.Request, j *job, key api.Key) {
	state, alone, err := s.await(r.Context(), j)
	if err != nil {
		if alone && state.ID != "" {
			s.Runs.Cancel(context.WithoutCancel(r.Context()), state.ID, launchActor)
		}
		s.refuseLaunch(w, r, s.left(r, err))
		return
	}
	s.launchVerdict(w, r, j, key, state)
}

// launchStart answers when the run has started.
func (s *Server) launchStart(w http.ResponseWriter, r *http.Request, j *job, key api.Key) {
	state, err := s.Runs.Start(j.request, j.task)
	if err != nil {
		s.refuseLaunch(w, r, err)
		return
	}
	limited, cancel := context.WithTimeout(r.Context(), launchStart)
	defer cancel()
	seen := &lookout{mark: []byte(launchStarted), found: cancel}
	s.Runs.Output(limited, state.ID, true, seen)
	if now, err := s.Runs.Run(state.ID); err == nil {
		state = now
	}
	s.launchVerdict(w, r, j, key, state)
}

// launchVerdict answers with the output of a run, and after a failure with its reason.
func (s *Server) launchVerdict(w http.ResponseWriter, r *http.Request, j *job, key api.Key, state api.Run) {
	ended := final(state.State)
	if ended && state.State != api.Stopped {
		s.launches.remember(key, j.delay, state.State != api.Succeeded)
	}
	status, body := http.StatusOK, state.Output
	if ended && state.State != api.Succeeded {
		if status = s.verdictStatus(w, state); status == s.failure() {
			status = http.StatusBadRequest
		}
		body = failureText("k6 failed: "+middle(state.Reason, maxReason)+"\n", state.Output, "")
	}
	var err error
	if wantsJSON(r) {
		state.URL = s.runURL(r, state.ID)
		err = reply(w, status, state)
	} else {
		err = text(w, status, body)
	}
	if ended {
		s.deliver(w, r, state, err)
	}
}

// refuseLaunch answers an error. Too many runs are to be tried again after the
// time that half of the last ones took.
func (s *Server) refuseLaunch(w http.ResponseWriter, r *http.Request, err error) {
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
	s.refuseTask(w, r, err)
}

// left returns how long calls still fail.
func (l *launches) left(k api.Key) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Until(l.failed[k])
}

// enter and leave count who waits for what a request asks for. Leave reports
// whether nobody does any more.
func (l *launches) enter(r run.Request) (id [sha256.Size]byte) {
	text, _ := json.Marshal([]any{r.Namespace, r.Name, r.Checksum, r.Metadata}) // cannot fail: they are texts
	id = sha256.Sum256(text)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.waiting == nil {
		l.waiting = map[[sha256.Size]byte]int{}
	}
	l.waiting[id]++
	return id
}

func (l *launches) leave(id [sha256.Size]byte) (last bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiting[id]--
	if last = l.waiting[id] == 0; last {
		delete(l.waiting, id)
	}
	return last
}

// remember remembers how a test ended.
func (l *launches) remember(k api.Key, delay time.Duration, failed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !failed {
		delete(l.failed, k)
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
		l.failed[k] = now.Add(delay)
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
