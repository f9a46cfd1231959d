package main

import (
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/headgate-io/headgate/internal/redact"
	"github.com/headgate-io/headgate/source"
)

// A store is a sort of object store that URLs of one scheme name buckets of.
type store struct {
	form      string   // of URLs
	providers []string // that it can be read with, the default first
	endpoint  string   // without --endpoint; "" where the URL names it
	other     string   // the default provider with --endpoint
}

// stores is the table of them by scheme.
var stores = map[string]store{
	"s3":     {"s3://BUCKET[/PREFIX]", []string{"aws", "generic"}, "s3.amazonaws.com", "generic"},
	"gs":     {"gs://BUCKET[/PREFIX]", []string{"gcp"}, "storage.googleapis.com", "gcp"},
	"azblob": {"azblob://HOST/CONTAINER[/PREFIX], or azblob://CONTAINER[/PREFIX] with --endpoint", []string{"azure"}, "", "azure"},
}

// azureHosts are what the names of blob services of Azure end in.
var azureHosts = []string{".blob.core.windows.net", ".blob.core.usgovcloudapi.net", ".blob.core.chinacloudapi.cn", ".blob.storage.azure.net"}

// schemeOf returns the scheme by which the kind of an URL is known: that of
// Azure's own URLs is azblob.
func schemeOf(arg string) string {
	scheme, rest, _ := strings.Cut(arg, "://")
	if end := strings.IndexAny(rest, "/?#"); end >= 0 {
		rest = rest[:end]
	}
	host, _, _ := strings.Cut(rest[strings.LastIndexByte(rest, '@')+1:], ":")
	isAzure := func(end string) bool { return strings.HasSuffix(host, end) }
	if scheme == "https" && slices.ContainsFunc(azureHosts, isAzure) {
		return "azblob"
	}
	return scheme
}

// A place is where a bucket is, and what of it is meant.
type place struct{ endpoint, bucket, prefix string }

// adhocBucket returns the Bucket that a URL of a store stands for.
func (s *session) adhocBucket(arg, scheme string) (source.Object, error) {
	at := stores[scheme]
	f := &s.flags.accessFlags
	provider := f.provider
	switch {
	case provider == "" && f.endpoint != "":
		provider = at.other
	case provider == "":
		provider = at.providers[0]
	case !slices.Contains(at.providers, provider):
		return nil, usage("--provider %s does not go with %s: want %s", provider, at.form, strings.Join(at.providers, " or "))
	}
	p, ok := at.place(arg, f)
	if !ok {
		return nil, usage("%s: want %s; credentials go into the Secret of --secret-ref", redact.String(arg), at.form)
	}
	b := &source.Bucket{Spec: source.BucketSpec{
		Provider: provider, Endpoint: p.endpoint, BucketName: p.bucket, Prefix: p.prefix, Region: f.region, Insecure: f.insecure,
		Interval: source.Duration(time.Minute), Timeout: source.Duration(s.flags.timeout),
		SecretRef: reference(f.secret), CertSecretRef: reference(f.cert), ProxySecretRef: reference(f.proxy),
	}}
	b.Kind = "Bucket"
	source.Default(b)
	if err := s.setName(b, p.bucket+"/"+p.prefix, s.originOf(b), true); err != nil {
		return nil, err
	}
	if err := source.Validate(b); err != nil {
		return nil, &exitError{exitUsage, err}
	}
	return b, nil
}

// place reads a URL. Those of schemes of their own are no more than two or three
// words, without escapes; one with a user or a query, which may be secret, is none.
func (at store) place(arg string, f *accessFlags) (place, bool) {
	scheme, rest, _ := strings.Cut(arg, "://")
	p := place{endpoint: f.endpoint}
	switch {
	case scheme == "https":
		u, err := url.Parse(arg)
		if err != nil || u.User != nil || u.Fragment != "" || f.endpoint != "" {
			return p, false
		}
		p.endpoint, rest = (&url.URL{Scheme: "https", Host: u.Host, RawQuery: u.RawQuery}).String(), strings.TrimPrefix(u.Path, "/")
	case strings.ContainsAny(rest, "?#"):
		return p, false
	case p.endpoint == "" && at.endpoint == "":
		p.endpoint, rest, _ = strings.Cut(rest, "/")
		if p.endpoint = "https://" + p.endpoint; f.insecure {
			p.endpoint = "http" + strings.TrimPrefix(p.endpoint, "https")
		}
	case p.endpoint == "":
		p.endpoint = at.endpoint
	}
	p.bucket, p.prefix, _ = strings.Cut(rest, "/")
	return p, p.endpoint != "" && p.bucket != "" && !strings.Contains(p.bucket, "@")
}
