package controller

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
)

// LogRefusals returns a transport wrapper for [k8s.io/client-go/rest.Config]. It logs each missing
// permission (verb, resource and namespace) at most once in 5 minutes.
func LogRefusals(log *slog.Logger) func(http.RoundTripper) http.RoundTripper {
	r := &refusals{log: log, logged: make(map[string]time.Time)}
	return func(next http.RoundTripper) http.RoundTripper { return refusalLogger{next, r} }
}

// refusals records the logged refusals.
type refusals struct {
	log    *slog.Logger
	mu     sync.Mutex
	logged map[string]time.Time // time of the last log entry by permission
}

// A refusalLogger is a transport that logs refusals.
type refusalLogger struct {
	next     http.RoundTripper
	refusals *refusals
}

// WrappedRoundTripper returns the wrapped transport. client-go uses it to cancel requests.
func (r refusalLogger) WrappedRoundTripper() http.RoundTripper { return r.next }

const (
	refusalLogInterval = 5 * time.Minute
	maxRefusals        = 1000
)

// RoundTrip implements [http.RoundTripper].
func (r refusalLogger) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := r.next.RoundTrip(req)
	if err != nil || resp.StatusCode != http.StatusForbidden {
		return resp, err
	}
	head, _ := io.ReadAll(io.LimitReader(resp.Body, 64<<10)) // enough for an error; the body is restored below
	resp.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(head), resp.Body), resp.Body}
	answer, _, err := scheme.Codecs.UniversalDeserializer().Decode(head, nil, nil)
	status, ok := answer.(*metav1.Status)
	if err != nil || !ok {
		return resp, nil
	}
	who, missing, authorizer := strings.Cut(status.Message, " cannot ") // format: verb resource "…" in API group "…" in the namespace "…"
	if authorizer && r.refusals.shouldLog(missing) {
		r.refusals.log.Warn("permission", "missing", missing, "user", strings.Trim(who[strings.LastIndex(who, " ")+1:], `"`), "do", grantAdvice)
	}
	return resp, nil
}

// shouldLog reports whether a missing permission was not logged in the last 5 minutes, and records that
// it is logged now.
func (r *refusals) shouldLog(missing string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	if last, told := r.logged[missing]; told && now.Sub(last) < refusalLogInterval {
		return false
	}
	if len(r.logged) == maxRefusals {
		clear(r.logged)
	}
	r.logged[missing] = now
	return true
}

const grantAdvice = "grant it to the service account of the controller by a Role or ClusterRole: kubernetes/deploy has the rules"

// withGrantAdvice adds advice to err if the API server refused a request because of a missing permission.
func withGrantAdvice(err error) error {
	if apierrors.IsForbidden(err) {
		return fmt.Errorf("%w: %s", err, grantAdvice)
	}
	return err
}
