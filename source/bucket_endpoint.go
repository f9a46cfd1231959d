package source

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"regexp"
	"strconv"
	"strings"
)

// An endpointForm is how buckets of one provider write spec.endpoint.
type endpointForm struct {
	bare  bool // HOST or HOST:PORT
	url   bool // http://... or https://...
	path  bool // with a path: path-style accounts of Azure
	query bool // with a query: a shared access signature
	want  string
}

var s3Endpoint = endpointForm{bare: true, want: "must be HOST or HOST:PORT without a scheme: TLS is used unless spec.insecure is set"}

var endpointForms = map[string]endpointForm{
	"generic": s3Endpoint,
	"aws":     s3Endpoint,
	"gcp":     {bare: true, url: true, want: "must be HOST, HOST:PORT or https://HOST, for example storage.googleapis.com"},
	"azure":   {url: true, path: true, query: true, want: "must be a URL, for example https://ACCOUNT.blob.core.windows.net"},
}

var hostForm = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?\.?$`)

// EndpointURL returns the URL of the server that spec.endpoint names. Where
// that has no scheme it is https, or http with spec.insecure. With provider azure
// the URL may have a path, and a query, which is a secret: the shared access
// signature. The path of the others is empty, and a slash at the end counts as
// no path.
//
// The endpoint is HOST or HOST:PORT with the providers generic and aws, that or
// a URL with gcp, a URL with azure. The error wraps [ErrInvalid] when it is
// something else, or http without spec.insecure; it never shows the endpoint.
func (s *BucketSpec) EndpointURL() (*url.URL, error) {
	u, err := s.endpoint()
	if err != nil {
		return nil, fmt.Errorf("%w: spec.endpoint %w", ErrInvalid, err)
	}
	return u, nil
}

func (s *BucketSpec) endpoint() (*url.URL, error) {
	form, known := endpointForms[generic(s.Provider)]
	if !known {
		form = s3Endpoint
	}
	if err := present(s.Endpoint); err != nil {
		return nil, err
	}
	text := s.Endpoint
	scheme, _, found := strings.Cut(text, "://")
	switch {
	case found && (!form.url || scheme != "http" && scheme != "https"), !found && !form.bare:
		return nil, errors.New(form.want)
	case found && scheme == "http" && !s.Insecure:
		return nil, errors.New("is without TLS: write https://, or set spec.insecure to allow that")
	case !found && s.Insecure:
		text = "http://" + text
	case !found:
		text = "https://" + text
	}
	u, err := url.Parse(text)
	if err != nil {
		return nil, errors.New(form.want)
	}
	u.Path, u.RawPath = strings.TrimSuffix(u.Path, "/"), strings.TrimSuffix(u.RawPath, "/")
	return u, form.check(u)
}

// check refuses what does not belong to an endpoint.
func (f endpointForm) check(u *url.URL) error {
	switch {
	case u.User != nil:
		return errors.New("must not hold a user or password: credentials go into secretRef")
	case u.Path != "" && !f.path, (u.RawQuery != "" || u.ForceQuery) && !f.query, u.Fragment != "":
		return errors.New(f.want)
	case !validHost(u.Hostname()):
		return errors.New("must name a host by a DNS name or an IP address")
	case u.Port() == "" && strings.HasSuffix(u.Host, ":"):
		return errors.New("has a colon without a port")
	case u.Port() == "":
		return nil
	}
	if port, err := strconv.ParseUint(u.Port(), 10, 16); err != nil || port == 0 {
		return fmt.Errorf("has port %s: want 1 to 65535", quote(u.Port()))
	}
	return nil
}

func validHost(host string) bool {
	addr, err := netip.ParseAddr(host)
	if err == nil {
		return addr.Zone() == ""
	}
	return len(host) <= 253 && hostForm.MatchString(host)
}
