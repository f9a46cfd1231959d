package bucket

import (
	"net/url"
	"strings"

	"github.com/headgate-io/headgate/source"
)

// Endpoint returns the server that spec.endpoint names, by http or https and
// without a slash at the end, as [source.BucketSpec.EndpointURL] has it. The
// query, which only provider azure allows, is returned by itself, without the
// question mark, as it was written. Nothing of it ever shows.
//
// The error is a *[source.StepError] with the reason URLInvalid that wraps
// [source.ErrInvalid], and says nothing of user information and query.
func (a *Access) Endpoint() (server *url.URL, query string, err error) {
	if _, found, ok := strings.Cut(a.Spec.Endpoint, "?"); ok {
		a.concealQuery(found)
	}
	u, err := a.Spec.EndpointURL()
	if err != nil {
		return nil, "", urlInvalid(err)
	}
	return &url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path, RawPath: u.RawPath}, u.RawQuery, nil
}

// STSEndpoint returns the token service that spec.sts.endpoint names: a URL with
// http or https. Errors are as those of [Access.Endpoint].
func (a *Access) STSEndpoint() (*url.URL, error) {
	u, err := a.Spec.STS.EndpointURL()
	if err != nil {
		return nil, urlInvalid(err)
	}
	return u, nil
}

func urlInvalid(err error) error {
	return &source.StepError{Step: source.StepResolve, Reason: "URLInvalid", Err: err}
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
