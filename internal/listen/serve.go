package listen

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/headgate-io/headgate/internal/answer"
	"github.com/headgate-io/headgate/internal/redact"
)

// A Service is what serves at listeners.
type Service struct {
	Handler http.Handler
	Request time.Duration               // for a request to come, its head and its body
	Grace   time.Duration               // for answers when it ends
	Problem func(text string)           // is told what is wrong with connections, fit for a log, as often as an answer.Rate allows
	Stop    func(context.Context) error // ends what the handler has under way, within the grace; nil for nothing
}

// Serve serves until ctx ends, and then ends gracefully: nobody new is let in,
// Stop is called, and callers that wait get their answers. What takes longer
// than Grace is cut off, with an error.
func (s Service) Serve(ctx context.Context, at ...net.Listener) error {
	server := &http.Server{
		Handler:        s.Handler,
		ReadTimeout:    s.Request,
		IdleTimeout:    idleTime,
		MaxHeaderBytes: maxHeaderBytes,
		HTTP2:          &http.HTTP2Config{MaxConcurrentStreams: maxStreams},
		ErrorLog:       log.New(&problems{tell: s.Problem}, "", 0),
		ConnContext:    trust,
	}
	ended := make(chan error, len(at))
	for _, l := range at {
		go func() { ended <- server.Serve(l) }()
	}
	var err error
	left := len(at)
	select {
	case err = <-ended:
		left--
	case <-ctx.Done():
	}
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.Grace)
	defer cancel()
	if s.Stop != nil {
		err = errors.Join(err, s.Stop(grace))
	}
	if late := server.Shutdown(grace); late != nil {
		err = errors.Join(err, fmt.Errorf("answers took longer than %s: %w", s.Grace, late), server.Close())
	}
	for range left {
		<-ended // http.ErrServerClosed
	}
	return err
}

// problems takes what net/http says of connections, a line or more at a time.
// Who can connect can cause any number of them.
type problems struct {
	tell func(text string)
	rate answer.Rate
}

func (p *problems) Write(line []byte) (int, error) {
	others, ok := p.rate.Allow(time.Now())
	if !ok {
		return len(line), nil
	}
	first, _, _ := strings.Cut(string(line), "\n") // a panic has a stack below
	text := redact.String(strings.TrimPrefix(first, "http: "))
	if others > 0 {
		text = fmt.Sprintf("%s; and %d others", text, others)
	}
	p.tell(text)
	return len(line), nil
}

type trustedKey struct{}

// trust marks the requests of a socket.
func trust(ctx context.Context, c net.Conn) context.Context {
	if own, ok := c.(*conn); ok && own.trusted {
		return context.WithValue(ctx, trustedKey{}, true)
	}
	return ctx
}

// Trusted reports whether a request came by a [Socket].
func Trusted(r *http.Request) bool {
	trusted, _ := r.Context().Value(trustedKey{}).(bool)
	return trusted
}
