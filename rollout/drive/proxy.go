package drive

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/headgate-io/headgate/internal/redact"
	"github.com/headgate-io/headgate/rollout"
	"github.com/headgate-io/headgate/rollout/traffic"
)

// A Proxy is a reverse proxy that divides the traffic until [Rollout.Close].
type Proxy struct {
	Listen  string        // HOST:PORT; port 0 takes a free one
	Primary string        // URL
	Canary  string        // URL
	Swap    bool          // exchange Primary and Canary if the URL of Canary was promoted last
	Drain   time.Duration // time limit for open requests at the end
}

// connectProxy makes the proxy the Traffic of the analysis. Without an action for
// promotion, the proxy promotes its canary to primary.
func (r *Rollout) connectProxy(adapter *traffic.Adapter) error {
	revision, err := adapter.Revision(r.ctx)
	if err != nil {
		return err
	}
	proxyPromotes := r.Actions[traffic.Promote] == nil
	promoted, err := r.choosePrimary(revision, proxyPromotes)
	if err != nil {
		return err
	}
	start := r.status.Routes()
	if revision != r.status.AppliedSpec || r.Again && r.status.Ended() {
		start = rollout.Routes{} // the routes of another rollout do not apply to this one
	}
	set := &r.Canary.Spec.Analysis
	r.proxy = &traffic.Proxy{Primary: r.Proxy.Primary, Canary: r.Proxy.Canary, Match: set.Match, MirrorWeight: set.MirrorWeight, Start: start, Interval: r.interval()}
	if _, err := r.proxy.Routes(r.ctx); err != nil {
		return fmt.Errorf("proxy: %w", err)
	}
	r.analysis.Traffic, r.analysis.Target = r.proxy, &target{r.proxy.Target(adapter), r}
	if promoted {
		r.promotedRevision = revision
		r.proxy.Promote()
	}
	return nil
}

// choosePrimary decides which URL is the primary. It must be the one that was promoted
// last, or the share of the primary would go to an older revision. proxyPromotes means that
// the proxy promotes. If revision itself is the promoted one, choosePrimary returns true
// and makes its URL the canary, which the proxy then promotes again.
func (r *Rollout) choosePrimary(revision string, proxyPromotes bool) (promoted bool, err error) {
	p, s := r.Proxy, r.status
	pastAnalysis := s.Phase == rollout.Promoting || s.Phase == rollout.Finalising || s.Phase == rollout.Succeeded
	known := proxyPromotes && !(r.Again && s.Ended()) && revision == s.PromotedSpec
	ofPrimary, ofCanary := normalizeURL(s.PromotedURL) == normalizeURL(p.Primary), normalizeURL(s.PromotedURL) == normalizeURL(p.Canary)
	switch {
	case s.PromotedURL == "": // an old status without the field, or no promotion yet
		return known && pastAnalysis && revision == s.AppliedSpec, nil
	case known && (s.Ended() || revision == s.AppliedSpec) && (ofPrimary || ofCanary):
		if !ofCanary {
			p.Primary, p.Canary = p.Canary, p.Primary
		}
		return true, nil
	case ofPrimary:
		return false, nil
	case ofCanary && p.Swap:
		p.Primary, p.Canary = p.Canary, p.Primary
		return false, p.checkReachable(r.ctx)
	}
	hint := ""
	if ofCanary {
		hint = ", or swap the two"
	}
	return false, fmt.Errorf("primary %s: revision %s was promoted at %[3]s, which has all requests; with this primary they would go to a version before it: %[3]s has to be the primary, and the URL of what is rolled out the canary%[4]s",
		redact.String(p.Primary), redact.String(s.PromotedSpec), redact.String(s.PromotedURL), hint)
}

// normalizeURL returns the normal form of a base URL, for comparison.
func normalizeURL(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return text
	}
	return strings.ToLower(u.Scheme+"://"+u.Host) + strings.TrimRight(u.Path, "/")
}

// checkReachable returns an error unless both servers answer, with any status.
func (p *Proxy) checkReachable(ctx context.Context) error {
	transport := &http.Transport{DisableKeepAlives: true}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for _, to := range []string{p.Primary, p.Canary} {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, to, nil)
		if err == nil {
			var resp *http.Response
			if resp, err = transport.RoundTrip(req); err == nil {
				err = resp.Body.Close()
			}
		}
		if err != nil {
			return fmt.Errorf("%s does not answer: %w", redact.String(to), err)
		}
	}
	return nil
}

// A target records which revision the proxy promotes. After that, Revision returns
// it always: no canary is left for another revision, which has to wait for the next
// run.
type target struct {
	rollout.Target
	r *Rollout
}

func (t *target) Revision(ctx context.Context) (_ string, err error) {
	if t.r.revision = t.r.promotedRevision; t.r.revision == "" {
		t.r.revision, err = t.Target.Revision(ctx)
	}
	return t.r.revision, err
}

func (t *target) Promote(ctx context.Context) error {
	err := t.Target.Promote(ctx)
	if err == nil && t.r.proxy != nil && t.r.Actions[traffic.Promote] == nil {
		t.r.promotedRevision = t.r.revision
		t.r.proxy.Promote()
	}
	return err
}

// eventMessage returns the message of an event. If the proxy promotes, the message says
// which URL gets all requests.
func (r *Rollout) eventMessage(e rollout.Event) string {
	if r.proxy == nil || r.Actions[traffic.Promote] != nil {
		return e.Message
	}
	text := map[rollout.EventCode]string{
		rollout.EventPromoteCopy:     "the canary is promoted, all requests go to %s",
		rollout.EventRoutePrimary:    "all requests go to %s",
		rollout.EventPrimaryAdvanced: "all requests go to %s, primary weight %d",
		rollout.EventPromoted:        "promoted, all requests go to %s",
		rollout.EventSkippedPromoted: "promoted without analysis, all requests go to %s",
	}[e.Code]
	if text == "" {
		return e.Message
	}
	values := []any{redact.String(r.Proxy.Canary), 100 - e.Weight}
	return e.Name + "." + e.Namespace + ": " + fmt.Sprintf(text, values[:strings.Count(text, "%")]...)
}

// withPromotedURL returns s with PromotedURL, which the analysis does not know.
func (r *Rollout) withPromotedURL(s rollout.Status) rollout.Status {
	switch {
	case r.promotedRevision != "":
		s.PromotedURL = r.Proxy.Canary
	case r.proxy == nil && s.Phase == rollout.Succeeded:
		s.PromotedURL = "" // it was promoted by other means
	}
	return s
}

// PromotedAt returns the revision that the proxy promoted and its URL. Both are ""
// if it promoted none.
func (r *Rollout) PromotedAt() (revision, url string) {
	if r.promotedRevision == "" {
		return "", ""
	}
	return r.promotedRevision, r.Proxy.Canary
}

// errProxy is wrapped by the error of a proxy that cannot serve any more.
var errProxy = errors.New("proxy")

// serve starts the server of the proxy.
func (r *Rollout) serve() error {
	l, err := net.Listen("tcp", r.Proxy.Listen)
	if err != nil {
		return fmt.Errorf("proxy: %w", err)
	}
	r.server = &http.Server{
		Addr: l.Addr().String(), Handler: r.proxy, ErrorLog: log.New(warningWriter{r.View}, "", 0),
		ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 256 << 10,
	}
	go func() {
		if err := r.server.Serve(l); err != http.ErrServerClosed {
			r.stop(fmt.Errorf("%w: %w", errProxy, err))
		}
	}()
	text := fmt.Sprintf("primary %s, canary %s", redact.String(r.Proxy.Primary), redact.String(r.Proxy.Canary))
	if r.promotedRevision != "" {
		text = "all requests go to " + redact.String(r.Proxy.Canary) + ", which was promoted"
	}
	r.View.Say("serving at http://" + r.server.Addr + ": " + text)
	return nil
}

// A warningWriter reports the first line of each write as a warning.
type warningWriter struct{ View }

func (w warningWriter) Write(text []byte) (int, error) {
	line, _, _ := strings.Cut(string(text), "\n") // a stack follows the first line of a panic
	w.Warn(fmt.Errorf("proxy: %s", strings.TrimPrefix(line, "http: ")))
	return len(text), nil
}

// shutdown closes the server after its open requests are answered, at the latest
// after Drain.
func (r *Rollout) shutdown(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, r.Proxy.Drain)
	defer cancel()
	if err := r.server.Shutdown(ctx); err != nil {
		r.server.Close()
		r.View.Warn(fmt.Errorf("proxy: requests that took longer than %s were cut off", r.Proxy.Drain))
	}
	r.View.Say("the proxy at http://" + r.server.Addr + " has ended")
}
