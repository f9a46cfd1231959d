package main

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/headgate-io/headgate/internal/redact"
	"github.com/headgate-io/headgate/rollout"
	"github.com/headgate-io/headgate/rollout/traffic"
)

// assign decides which URL is the primary's, by the one that was promoted last:
// with another one the share of the primary would go to the version before it.
// It reports whether revision is the one that was promoted, and then makes its
// URL that of the canary, which the proxy is to promote again.
func (d *drive) assign(ctx context.Context, s rollout.Status, revision string, operation bool) (promoted bool, err error) {
	f := d.flags
	again := f.again && s.Ended()
	over := s.Phase == rollout.Promoting || s.Phase == rollout.Finalising || s.Phase == rollout.Succeeded
	known := !operation && !again && revision == s.PromotedSpec
	ofPrimary, ofCanary := sameBase(s.PromotedURL, f.primary), sameBase(s.PromotedURL, f.canary)
	switch {
	case s.PromotedURL == "": // a status of before this was kept, or no promotion yet
		return known && over && revision == s.AppliedSpec, nil
	case known && (s.Ended() || revision == s.AppliedSpec) && (ofPrimary || ofCanary):
		if !ofCanary {
			f.primary, f.canary = f.canary, f.primary
		}
		return true, nil
	case ofPrimary:
		return false, nil
	case ofCanary && f.swap:
		f.primary, f.canary = f.canary, f.primary
		return false, f.answering(ctx)
	}
	hint := ""
	if ofCanary {
		hint = ", or --swap"
	}
	return false, usage("--primary %s: revision %s was promoted at %s, which has all requests; with this primary they would go to a version before it: give --primary %s and --canary with the URL of what is rolled out%s",
		redact.String(f.primary), redact.String(s.PromotedSpec), redact.String(s.PromotedURL), redact.String(s.PromotedURL), hint)
}

// sameBase reports whether two base URLs are of one server.
func sameBase(a, b string) bool { return base(a) == base(b) }

func base(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return text
	}
	return strings.ToLower(u.Scheme+"://"+u.Host) + strings.TrimRight(u.Path, "/")
}

// answerTime is how long a server may take to show that it is there.
const answerTime = 10 * time.Second

// answering returns an error unless both servers answer, whatever that is.
func (f *frontFlags) answering(ctx context.Context) error {
	transport := &http.Transport{DisableKeepAlives: true}
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	for _, to := range []string{f.primary, f.canary} {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, to, nil)
		if err == nil {
			var resp *http.Response
			if resp, err = transport.RoundTrip(req); err == nil {
				err = resp.Body.Close()
			}
		}
		if err != nil {
			return usage("--swap: %s does not answer: %w", redact.String(to), err)
		}
	}
	return nil
}

// servers says who gets the requests to the proxy, and how long there is one.
func (d *drive) servers() string {
	f := d.flags
	text := fmt.Sprintf("primary %s, canary %s", redact.String(f.primary), redact.String(f.canary))
	if d.swapping != nil && d.swapping.promoted != "" {
		text = "all requests go to " + redact.String(f.canary) + ", which was promoted"
	}
	if !f.keep {
		text += "; the proxy ends with this run, without --proxy-keep"
	}
	return text
}

// swapping is a target of which the proxy is all that has to know a promotion.
// After it there is no canary left for another revision: that has to wait for
// the next run.
type swapping struct {
	rollout.Target
	proxy    *traffic.Proxy
	revision string // as it was read last
	promoted string // "" before the promotion
}

func (s *swapping) Revision(ctx context.Context) (string, error) {
	if s.promoted != "" {
		return s.promoted, nil
	}
	var err error
	s.revision, err = s.Target.Revision(ctx)
	return s.revision, err
}

func (s *swapping) Promote(ctx context.Context) error {
	if err := s.Target.Promote(ctx); err != nil {
		return err
	}
	s.promoted = s.revision
	s.proxy.Promote()
	return nil
}

// servedSink is a sink of the events of a rollout whose canary serves everything
// once it is promoted: they say at which URL.
type servedSink struct {
	rollout.Sink
	url string
}

var servedTexts = map[rollout.EventCode]string{
	rollout.EventPromoteCopy:     "the canary is promoted, all requests go to %s",
	rollout.EventRoutePrimary:    "all requests go to %s",
	rollout.EventPrimaryAdvanced: "all requests go to %s, primary weight %d",
	rollout.EventPromoted:        "promoted, all requests go to %s",
	rollout.EventSkippedPromoted: "promoted without analysis, all requests go to %s",
}

func (s servedSink) Emit(ctx context.Context, e rollout.Event) {
	if text, found := servedTexts[e.Code]; found {
		values := []any{redact.String(s.url), 100 - e.Weight}
		e.Message = e.Name + "." + e.Namespace + ": " + fmt.Sprintf(text, values[:strings.Count(text, "%")]...)
	}
	s.Sink.Emit(ctx, e)
}

// kept is the status with what the analysis does not know: where the revision
// of the primary is.
func (d *drive) kept(s rollout.Status) rollout.Status {
	switch {
	case d.swapping != nil && d.swapping.promoted != "":
		s.PromotedURL = d.flags.canary
	case d.proxy == nil && s.Phase == rollout.Succeeded:
		s.PromotedURL = "" // it was promoted by other means
	}
	return s
}
