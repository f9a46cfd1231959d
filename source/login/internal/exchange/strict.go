package exchange

import (
	"net/http"
	"sync/atomic"
)

// Strict returns client for libraries that print whole answers, and that follow
// redirects with their credentials: an answer other than 2xx, a redirect among
// them, is an error. failed returns the last such error, nil when there was none.
func Strict(client *http.Client) (strict *http.Client, failed func() *StatusError) {
	c := *client
	s := &strictTransport{RoundTripper: client.Transport}
	c.Transport = s
	return &c, s.failure.Load
}

type strictTransport struct {
	http.RoundTripper
	failure atomic.Pointer[StatusError]
}

func (s *strictTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := s.RoundTripper.RoundTrip(req)
	if err != nil || resp.StatusCode/100 == 2 {
		return resp, err
	}
	defer resp.Body.Close()
	failure := newStatusError(req, resp)
	s.failure.Store(failure)
	return nil, failure
}
