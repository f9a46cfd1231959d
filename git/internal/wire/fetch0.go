package wire

import (
	"fmt"
	"strings"
)

// fetchRequest0 is the upload-request of versions 0 and 1 and the whole
// negotiation after it, in one message.
func (r *Remote) fetchRequest0(q FetchRequest) *request {
	req := &request{}
	for i, id := range q.Wants {
		if i == 0 {
			req.line("want %s%s", id, r.wantCapabilities(q))
			continue
		}
		req.line("want %s", id)
	}
	for _, id := range q.Shallow {
		req.line("shallow %s", id)
	}
	if q.Depth > 0 {
		req.line("deepen %d", q.Depth)
	}
	if q.Filter != "" {
		req.line("filter %s", q.Filter)
	}
	req.flush()
	for _, id := range q.Haves {
		req.line("have %s", id)
	}
	req.line("done")
	return req
}

// wantCapabilities names the capabilities that a request makes use of, of those
// the server has. Some servers insist on multi_ack.
func (r *Remote) wantCapabilities(q FetchRequest) string {
	var b strings.Builder
	for _, c := range []struct {
		on    bool
		names []string // the first that the server has
	}{
		{true, []string{"multi_ack_detailed", "multi_ack"}},
		{true, []string{"side-band-64k", "side-band"}},
		{true, []string{"ofs-delta"}},
		{q.ThinPack, []string{"thin-pack"}},
		{q.Progress == nil, []string{"no-progress"}},
		{q.Deepen, []string{"deepen-relative"}},
		{q.Filter != "", []string{"filter"}},
	} {
		for _, name := range c.names {
			if c.on && r.Supports(name) {
				fmt.Fprintf(&b, " %s", name)
				break
			}
		}
	}
	if f, ok := r.g.caps["object-format"]; ok {
		fmt.Fprintf(&b, " object-format=%s", f)
	}
	if r.Supports("agent") {
		b.WriteString(" agent=headgate")
	}
	return b.String()
}

// readNegotiation reads what precedes the pack in versions 0 and 1, and tells
// whether the pack comes in bands.
func (r *Remote) readNegotiation(f *FetchResponse, shallow bool) (banded bool, err error) {
	if shallow {
		if err := r.readShallow(f); err != nil {
			return false, err
		}
	}
	for {
		text, err := startsWithText(f.a.pktReader)
		if err != nil || !text {
			return r.Supports("side-band-64k") || r.Supports("side-band"), err
		}
		_, line, err := f.a.line()
		if err != nil {
			return false, err
		}
		if line != "NAK" && !strings.HasPrefix(line, "ACK ") {
			return false, protocolf("%.80q in place of an acknowledgment", line)
		}
		if err := r.addInfo(f, line); err != nil {
			return false, err
		}
	}
}

// readShallow reads the list of shallow commits and the flush at its end.
func (r *Remote) readShallow(f *FetchResponse) error {
	for {
		k, line, err := f.a.line()
		switch {
		case err != nil || k == pktFlush:
			return err
		case k != pktData:
			return protocolf("the list of shallow commits does not end in a flush")
		}
		if err := r.addInfo(f, line); err != nil {
			return err
		}
	}
}

// startsWithText reports whether a line of text comes next, and neither a pack
// nor a band with a piece of one.
func startsWithText(p *pktReader) (bool, error) {
	b, err := p.br.Peek(pktHeader + 1)
	if err != nil {
		return false, err
	}
	return string(b[:4]) != "PACK" && b[4] >= ' ', nil
}
