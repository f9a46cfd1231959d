package main

import (
	"errors"
	"fmt"
	"net/url"
	"path"
	"strconv"
	"strings"
)

// ordinal returns the index of this shard: the number at the end of the pod name.
func (f *flags) ordinal() (int, error) {
	n, err := strconv.ParseUint(f.pod[strings.LastIndexByte(f.pod, '-')+1:], 10, 31)
	if err != nil || !strings.Contains(f.pod, "-") {
		return 0, fmt.Errorf("--shards: the name %q (POD_NAME, or else that of the host) does not end in an ordinal, as those of the pods of a StatefulSet do", f.pod)
	}
	if n >= uint64(f.shards) {
		return 0, fmt.Errorf("--shards %d: the pod %s is one too many: scale the StatefulSet to %d, or set --shards", f.shards, f.pod, f.shards)
	}
	return int(n), nil
}

// newURLCheck returns a function that returns an error for URLs from which artifacts must not be
// fetched. Allowed are URLs below the address of this controller, below those of the other shards,
// and below --source-addrs.
func (f *flags) newURLCheck(base string) (func(*url.URL) error, error) {
	addrs := append([]string{base}, f.sourceAddrs...)
	if f.shards > 1 && strings.Contains(base, f.pod) {
		stem := f.pod[:strings.LastIndexByte(f.pod, '-')+1]
		for i := range f.shards {
			addrs = append(addrs, strings.Replace(base, f.pod, stem+strconv.Itoa(i), 1))
		}
	} else if f.shards > 1 && len(f.sourceAddrs) == 0 {
		return nil, fmt.Errorf("--storage-adv-addr %q: want the name of the pod in it, as $(POD_NAME).SERVICE.NAMESPACE.svc.cluster.local. has it, or the addresses of the other shards in --source-addrs", base)
	}
	var below []*url.URL
	for _, addr := range addrs {
		if !strings.Contains(addr, "://") {
			addr = "http://" + addr
		}
		u, err := url.Parse(addr)
		if err != nil || u.Host == "" {
			return nil, fmt.Errorf("--source-addrs %q: want HOST[:PORT] or a URL", addr)
		}
		below = append(below, u)
	}
	return func(u *url.URL) error {
		for _, b := range below {
			if schemeAndHost(u) == schemeAndHost(b) && strings.HasPrefix(path.Clean("/"+u.Path)+"/", strings.TrimRight(b.Path, "/")+"/") {
				return nil
			}
		}
		return errors.New("artifacts are not fetched from there: if they may be, name the address in --source-addrs")
	}, nil
}

// schemeAndHost returns the scheme, host and port of a URL.
func schemeAndHost(u *url.URL) string {
	standard := map[string]string{"http": ":80", "https": ":443"}[u.Scheme]
	return u.Scheme + "://" + strings.TrimSuffix(strings.ToLower(u.Host), standard)
}
