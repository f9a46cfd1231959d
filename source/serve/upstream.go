package serve

import (
	"net/url"
	"strings"

	"github.com/headgate-io/headgate/source"
)

// upstreamOf says where obj comes from: objects with equal keys ask the same
// server the same questions with the same credentials. The upstream of a chart is
// its source's, which at returns, nil when there is none. An object of an unknown
// kind, or with an address that cannot be read, has a key of its own.
func upstreamOf(obj source.Object, at func(source.Reference) source.Object) (key, host string) {
	own := source.ReferenceTo(obj).String()
	space := source.ReferenceTo(obj).Namespace
	switch o := obj.(type) {
	case *source.GitRepository:
		return address(o.Spec.URL, space, o.Spec.SecretRef, o.Spec.Provider, o.Spec.ServiceAccountName, own)
	case *source.OCIRepository:
		return address(o.Spec.URL, space, o.Spec.SecretRef, o.Spec.Provider, o.Spec.ServiceAccountName, own)
	case *source.PkgRepository:
		return address(o.Spec.URL, space, o.Spec.SecretRef, o.Spec.Provider, "", own)
	case *source.Bucket:
		u, err := o.Spec.EndpointURL()
		if err != nil {
			return own, ""
		}
		return address(u.JoinPath(o.Spec.BucketName).String(), space, o.Spec.SecretRef, o.Spec.Provider, o.Spec.ServiceAccountName, own)
	case *source.PkgChart:
		if ref, ok := o.Source(); ok {
			if from := at(ref); from != nil && !external(from) {
				return upstreamOf(from, at)
			}
		}
	}
	return own, ""
}

// address returns the key and the host of a URL.
func address(text, space string, secret *source.LocalReference, provider, account, own string) (key, host string) {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" {
		return own, ""
	}
	key = text
	if secret != nil {
		key += "\nsecret " + space + "/" + secret.Name
	}
	if account != "" {
		key += "\naccount " + space + "/" + account
	}
	if provider != "" && provider != "generic" {
		key += "\nprovider " + provider
	}
	return key, strings.ToLower(u.Host)
}
