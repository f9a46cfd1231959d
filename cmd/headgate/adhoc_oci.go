package main

import (
	"net/url"
	"strings"
	"time"

	"github.com/headgate-io/headgate/source"
)

const ociScheme = "oci://"

// adhocOCI returns the OCIRepository that oci://HOST/PATH[:TAG][@DIGEST | @RANGE] stands for.
func (s *session) adhocOCI(arg string) (source.Object, error) {
	if err := unfinished(arg, ":@"); err != nil {
		return nil, err
	}
	address, tag, ref := splitTag(arg)
	u, err := url.Parse(address)
	if err != nil {
		return nil, usage("%q is no URL", address)
	}
	o := &source.OCIRepository{Spec: source.OCIRepositorySpec{
		URL: address, Interval: source.Duration(time.Minute), Ref: &source.OCIRepositoryRef{Tag: tag},
		Provider: s.flags.provider, Insecure: s.flags.insecure,
		SecretRef: reference(s.flags.secret), CertSecretRef: reference(s.flags.cert), ProxySecretRef: reference(s.flags.proxy),
	}}
	switch {
	case strings.Contains(ref, ":"):
		o.Spec.Ref.Digest = ref
	case ref != "" && tag != "":
		return nil, usage("%s: a tag and a range of versions exclude each other", arg)
	default:
		o.Spec.Ref.SemVer = ref
	}
	o.Kind = "OCIRepository"
	source.Default(o)
	if err := s.setName(o, lastWords(u), s.originOf(o), true); err != nil {
		return nil, err
	}
	if err := source.Validate(o); err != nil {
		return nil, &exitError{exitUsage, err}
	}
	return o, nil
}

// splitTag cuts the tag and what follows @ from the URL of a registry.
func splitTag(arg string) (address, tag, ref string) {
	address, ref = splitRef(arg)
	slash := strings.LastIndexByte(address, '/')
	if colon := strings.LastIndexByte(address, ':'); colon > slash && slash > len(ociScheme) {
		address, tag = address[:colon], address[colon+1:]
	}
	return address, tag, ref
}
