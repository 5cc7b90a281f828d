"""CPython's tests of ``xml.etree.ElementTree``, of the module that programs import: its own run a second copy of the C code."""

import unittest
import xml.etree.ElementTree

from test import test_xml_etree


def setUpModule():
    test_xml_etree.setUpModule(xml.etree.ElementTree)


for name, case in vars(test_xml_etree).items():
    if isinstance(case, type) and issubclass(case, unittest.TestCase):
        # unittest prepares the module that a class says it is of.
        globals()[name] = type(name, (case,), {"__module__": __name__})
