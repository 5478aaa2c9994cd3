"""The Neuromeka Indy7, driven through the vendor's library neuromeka."""
