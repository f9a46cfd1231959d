package openpgp

import (
	"bytes"
	"errors"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp/clearsign"
	"github.com/ProtonMail/go-crypto/openpgp/packet"
)

// beginText is the line that begins a text that is signed in the clear, and
// beginSignature the one behind it.
var (
	beginText      = []byte("-----BEGIN PGP SIGNED MESSAGE-----")
	beginSignature = []byte("\n-----BEGIN PGP SIGNATURE-----")
)

var (
	errAround  = errors.New("want one text that is signed in the clear (OpenPGP cleartext signature), and nothing around it")
	errUnclear = errors.New("the text that is signed in the clear is malformed")
)

// VerifyText checks a text that is signed in the clear (RFC 9580 section 7), as
// [Keys.Verify] does. It returns what is signed, the lines ending in LF alone,
// which is all that can be relied on.
func (k *Keys) VerifyText(message []byte, now time.Time) (text []byte, signer string, err error) {
	message = bytes.ReplaceAll(bytes.TrimSpace(message), []byte("\r\n"), []byte("\n"))
	// A line of the text that begins with a dash has another before it, so that none looks like this.
	at := bytes.Index(message, beginSignature)
	if !bytes.HasPrefix(message, beginText) || bytes.Count(message, beginText) != 1 || at < 0 {
		return nil, "", errAround
	}
	block, rest := clearsign.Decode(append(bytes.Clone(message), '\n'))
	switch {
	case block == nil:
		return nil, "", errUnclear
	case len(bytes.TrimSpace(rest)) > 0:
		return nil, "", errAround
	}
	if signer, err = k.verify(block.Bytes, message[at+1:], packet.SigTypeText, now); err != nil {
		return nil, "", err
	}
	return bytes.ReplaceAll(block.Bytes, []byte("\r\n"), []byte("\n")), signer, nil
}
