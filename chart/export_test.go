package chart

// What tests of the package's own door sign charts with.
var (
	NewKey     = newKey
	PublicKeys = public
	SignText   = signText
	Statement  = statement
)
