package bucket

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"regexp"
	"strconv"
	"strings"

	"github.com/headgate-io/headgate/source"
)

// An endpointForm says what may stand in spec.endpoint beside HOST[:PORT].
type endpointForm struct {
	url   bool // a URL, with a path
	query bool // the query of a shared access signature
}

// endpointForms is the table of forms by spec.provider (reference A10).
var endpointForms = map[string]endpointForm{
	"gcp":   {url: true},
	"azure": {url: true, query: true},
}

const maxEndpoint = 8 << 10 // bytes of spec.endpoint: a signature may be long

// hostForm is a name in DNS, one that is not quite included.
var hostForm = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9.])?$`)

// Endpoint returns the server that spec.endpoint names: http or https, a host,
// and no slash at the end. With the providers generic and aws the field holds
// HOST[:PORT], over TLS unless spec.insecure is set. With gcp and azure it may be
// a URL too, which may have a path; one with http needs spec.insecure. Only with
// azure it may have a query: that is returned by itself, without the question
// mark, as it was written. Nothing of it ever shows.
//
// The error is a *[source.StepError] with the reason URLInvalid that wraps
// [source.ErrInvalid], and says nothing of user information and query.
func (a *Access) Endpoint() (server *url.URL, query string, err error) {
	spec := a.Spec
	form := endpointForms[spec.Provider]
	if _, found, ok := strings.Cut(spec.Endpoint, "?"); ok {
		query = found
		a.concealQuery(query)
	}
	server, err = form.parse(spec.Endpoint, spec.Insecure)
	if err != nil {
		return nil, "", urlInvalid("spec.endpoint", err)
	}
	return server, query, nil
}

// STSEndpoint returns the token service that spec.sts.endpoint names: a URL with
// http or https. Errors are as those of [Access.Endpoint].
func (a *Access) STSEndpoint() (*url.URL, error) {
	text := a.Spec.STS.Endpoint
	if !strings.Contains(text, "://") {
		return nil, urlInvalid("spec.sts.endpoint", errors.New("it has no scheme: write https://HOST[:PORT]"))
	}
	u, err := endpointForm{url: true}.parse(text, true)
	if err != nil {
		return nil, urlInvalid("spec.sts.endpoint", err)
	}
	return u, nil
}

func urlInvalid(field string, err error) error {
	return &source.StepError{Step: source.StepResolve, Reason: "URLInvalid", Err: fmt.Errorf("%w: %s: %w", source.ErrInvalid, field, err)}
}

// concealQuery keeps the query of an endpoint out of texts, and its signature by itself.
func (a *Access) concealQuery(query string) {
	a.Vault.Conceal(query)
	for _, pair := range strings.Split(query, "&") {
		name, value, _ := strings.Cut(pair, "=")
		if !strings.EqualFold(name, "sig") {
			continue
		}
		a.Vault.Conceal(value)
		if plain, err := url.QueryUnescape(value); err == nil {
			a.Vault.Conceal(plain)
		}
	}
}

// parse reads an endpoint of the form f.
func (f endpointForm) parse(text string, insecure bool) (*url.URL, error) {
	if len(text) > maxEndpoint {
		return nil, fmt.Errorf("it has %d bytes, at most %d are allowed", len(text), maxEndpoint)
	}
	_, _, whole := strings.Cut(text, "://")
	switch {
	case whole && !f.url:
		return nil, errors.New("it has a scheme: leave that out and write HOST[:PORT], spec.insecure says whether it is http or https")
	case !whole && insecure:
		text = "http://" + text
	case !whole:
		text = "https://" + text
	}
	u, err := url.Parse(text) // err would print credentials
	if err != nil {
		return nil, errors.New("it cannot be parsed: " + f.want())
	}
	if err := f.check(u, insecure); err != nil {
		return nil, err
	}
	return &url.URL{Scheme: u.Scheme, Host: u.Host, Path: strings.TrimRight(u.Path, "/"), RawPath: strings.TrimRight(u.RawPath, "/")}, nil
}

func (f endpointForm) want() string {
	if f.url {
		return "write https://HOST[:PORT][/PATH]"
	}
	return "write HOST[:PORT]"
}

// check judges an endpoint that was parsed.
func (f endpointForm) check(u *url.URL, insecure bool) error {
	switch {
	case u.User != nil:
		return errors.New("it has user information: credentials belong into spec.secretRef")
	case u.Scheme != "http" && u.Scheme != "https":
		return fmt.Errorf("its scheme is %q: use https, or http with spec.insecure", u.Scheme)
	case u.Scheme == "http" && !insecure:
		return errors.New("it is http: use https, or set spec.insecure if nothing is to be encrypted")
	case u.Fragment != "" || strings.Contains(u.String(), "#"):
		return errors.New("it has a fragment: remove what begins with #")
	case (u.RawQuery != "" || u.ForceQuery) && !f.query:
		return errors.New("it has a query: remove what begins with ?")
	case strings.Trim(u.Path, "/") != "" && !f.url:
		return errors.New("it has a path: " + f.want())
	}
	if !isHost(u) {
		return errors.New("it names no host: " + f.want())
	}
	return nil
}

// isHost reports whether u has a host and, if any, a port.
func isHost(u *url.URL) bool {
	if port := u.Port(); port != "" {
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return false
		}
	}
	if _, err := netip.ParseAddr(u.Hostname()); err == nil {
		return true
	}
	return !strings.HasSuffix(u.Host, ":") && hostForm.MatchString(u.Hostname())
}
