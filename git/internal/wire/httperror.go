package wire

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"strings"
)

const maxErrorPage = 4 << 10 // bytes read of an error page

// statuses tells what an HTTP status means and what to do about it.
var statuses = map[int]struct {
	kind error
	hint string
}{
	http.StatusUnauthorized:      {ErrAuth, "check the credentials in the Secret: their kind, and that they may read this repository"},
	http.StatusForbidden:         {ErrAuth, "the credentials may not read this repository"},
	http.StatusProxyAuthRequired: {ErrAuth, "the proxy wants a user name and password"},
	http.StatusNotFound:          {ErrNotFound, "check the URL; some servers answer so when credentials are missing"},
	http.StatusGone:              {ErrNotFound, "the repository was removed"},
	http.StatusTooManyRequests:   {ErrBusy, "the server limits requests: try again later"},
}

// checkResponse accepts a response with status 200 and the given content type.
func checkResponse(resp *http.Response, want string) error {
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if resp.StatusCode == http.StatusOK {
		if kind == want {
			return nil
		}
		return wrongType(resp, kind)
	}
	said := ""
	if kind == "text/plain" { // where servers explain themselves; pages in HTML do not
		page, _ := io.ReadAll(io.LimitReader(resp.Body, maxErrorPage))
		if text := clean(string(page)); text != "" {
			said = " (" + text + ")"
		}
	}
	status := fmt.Sprintf("HTTP status %d%s", resp.StatusCode, said)
	s, ok := statuses[resp.StatusCode]
	switch {
	case ok:
		return fmt.Errorf("%w: %s: %s", s.kind, status, s.hint)
	case resp.StatusCode >= http.StatusInternalServerError:
		return fmt.Errorf("%w: %s: try again later", ErrBusy, status)
	}
	return fmt.Errorf("%w: %s", ErrRemote, status)
}

// wrongType explains a success that is no answer of git-upload-pack.
func wrongType(resp *http.Response, kind string) error {
	if kind == "text/html" {
		return protocolf("the server answers with a web page: check that the URL is that of a Git repository")
	}
	start, _ := io.ReadAll(io.LimitReader(resp.Body, maxErrorPage))
	if line, _, ok := strings.Cut(string(start), "\n"); ok && strings.Contains(line, "\trefs/") {
		return fmt.Errorf("%w: it offers the repository by the dumb HTTP protocol only; git-http-backend is needed", ErrUnsupported)
	}
	return protocolf("content type %.80q: check that the URL is that of a Git repository", kind)
}

// explain turns the error of an HTTP client into one that tells the phase, not
// the URL, and what to do.
func (p *progress) explain(err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err // its text repeats the URL, query and all
	}
	if strings.HasPrefix(err.Error(), "failed to parse Location header") { // which it goes on to repeat
		return fmt.Errorf("%w: it has no valid address", ErrRedirect)
	}
	switch p.step.Load() {
	case stepDial:
		return inPhase(Dial, err)
	case stepTLS:
		return inPhase(Handshake, tlsHint(err))
	}
	return tlsHint(err) // TLS 1.3 refuses client certificates after the handshake
}

// tlsHint adds to a TLS error what to do about it.
func tlsHint(err error) error {
	if e, ok := errors.AsType[*net.OpError](err); ok && e.Op == "remote error" { // a TLS alert, of a type without a name
		if strings.Contains(e.Err.Error(), "certificate") {
			return fmt.Errorf("%w: %w: check the client certificate, tls.crt and tls.key of the Secret", ErrAuth, err)
		}
		return err
	}
	hint := ""
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		hint = "put the certificate of its authority into ca.crt of the Secret"
	} else if _, ok := errors.AsType[x509.HostnameError](err); ok {
		hint = "use a host name in the URL that the certificate is for"
	} else if e, ok := errors.AsType[x509.CertificateInvalidError](err); ok && e.Reason == x509.Expired {
		hint = "the certificate of the server, or the clock here, is out of date"
	} else if _, ok := errors.AsType[tls.RecordHeaderError](err); ok {
		hint = "the server does not speak TLS on this port: check scheme and port of the URL"
	}
	if hint == "" {
		return err
	}
	return fmt.Errorf("%w: %s", err, hint)
}
