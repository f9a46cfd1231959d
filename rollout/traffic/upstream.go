package traffic

import (
	"io"
	"log"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
)

// An upstream is one of the two servers behind the proxy.
type upstream struct {
	forward *httputil.ReverseProxy
	window  window
}

func (p *Proxy) newUpstream(base *url.URL, transport http.RoundTripper, buffers *buffers) *upstream {
	return &upstream{forward: &httputil.ReverseProxy{
		Transport:      transport,
		Rewrite:        func(r *httputil.ProxyRequest) { rewrite(r, base, p.TrustForwarded) },
		ModifyResponse: p.answered,
		ErrorHandler:   failed,
		ErrorLog:       log.New(io.Discard, "", 0), // what fails is counted
		BufferPool:     buffers,
	}}
}

// rewrite makes the request to the upstream of the one that came in.
func rewrite(r *httputil.ProxyRequest, base *url.URL, trust bool) {
	r.Out.URL.RawQuery = r.In.URL.RawQuery // as it was sent: the proxy does not decide by it
	r.Out.Trailer = r.In.Trailer           // it is filled when the body was read
	r.SetURL(base)
	r.Out.Host = r.In.Host
	if trust {
		for _, name := range []string{"Forwarded", "X-Forwarded-For"} {
			if values := r.In.Header[name]; values != nil {
				r.Out.Header[name] = values
			}
		}
	}
	if !trust {
		for name := range r.Out.Header {
			if strings.HasPrefix(name, "X-Forwarded-") || name == "X-Real-Ip" {
				delete(r.Out.Header, name)
			}
		}
	}
	r.SetXForwarded()
	if trust {
		for _, name := range []string{"X-Forwarded-Host", "X-Forwarded-Proto"} {
			if values := r.In.Header[name]; values != nil {
				r.Out.Header[name] = values
			}
		}
	}
}

// upgrades reports whether req asks for another protocol on its connection.
func upgrades(req *http.Request) bool {
	if req.Header.Get("Upgrade") == "" {
		return false
	}
	for _, value := range req.Header["Connection"] {
		for token := range strings.SplitSeq(value, ",") {
			if strings.EqualFold(strings.TrimSpace(token), "upgrade") {
				return true
			}
		}
	}
	return false
}

// buffers are for copying bodies.
type buffers struct{ pool sync.Pool }

const bufferSize = 32 << 10

func (b *buffers) Get() []byte {
	if buffer, ok := b.pool.Get().(*[bufferSize]byte); ok {
		return buffer[:]
	}
	return make([]byte, bufferSize)
}

func (b *buffers) Put(buffer []byte) { b.pool.Put((*[bufferSize]byte)(buffer)) }
