"""Words of the synthetic prompts: common nouns, so that sentence embeddings can tell topics apart."""

_TEXT = """
abbey account acorn actor adapter airport album alcohol algebra almond alphabet anchor animal ankle antenna
apple apron arcade archive arctic armour arrow artist asphalt atlas atom auction audio author autumn avenue
award badge bakery balance balcony ballet balloon bamboo banana bandage banker banner barley barn barrel
basin basket battery beach beacon beaver bedroom beetle bell bench berry bicycle biology birch bishop
blanket blossom boat bonus border bottle boulder bracket branch brass bread breeze brick bridge broker
bronze brother brush bubble bucket budget builder bullet bundle burden butter button cabin cable cactus
camera camp canal candle canoe canvas capital captain carbon cargo carpet carriage carrot castle cattle
cellar cement census century ceramic cereal chain chalk chamber channel chapel charcoal chart cheese chemist
cherry chess chimney chorus church cider cinema circle citizen clay client cliff climate clinic clock cloth
cloud clover coach coal coast cobalt coffee collar college column comet compass concert contract copper
coral corner cotton council county courier cousin coyote cradle crane crater cream credit cricket crystal
cupboard curtain cushion cyclist dairy dancer debate debt decade deer degree delta dentist deposit desert
detective diamond diary dinner diploma disease dolphin donkey doorway dragon drama drawer driver drought
drum duchess eagle earring economy editor elbow elevator embassy emerald empire engine envelope equation
estate exhibit fabric factory farmer feather fence ferry fever fiction fiddle field figure filter finance
finger fisher flag flame flavour fleet flood flour flute forest fossil fountain fraction freight friend
frost funeral furnace galaxy gallery garage garden garlic gasoline gender geology ghost ginger giraffe
glacier glass globe glove goat gospel gossip grain granite grape gravity grocery guitar gutter habitat
hammer handle harbour harvest hazard hedge helmet herb heritage hockey honey horizon hospital hotel hunter
husband hydrogen iceberg income infant insect insurance iron island ivory jacket jaguar jewel journal
journey judge juice jungle jury kettle kidney kingdom kitchen kitten knife ladder lagoon lantern lawyer
leather lecture legend lemon leopard lesson letter lettuce library lighthouse lily limestone linen lizard
lobster locker logic lottery luggage lumber lunch machine magnet mammal mango mansion maple marble margin
market mathematics mayor meadow medicine melody memory merchant mercury merger metal meteor midnight mineral
minister mirror missile mixture molecule monastery monkey monument morning mortgage mosque mosquito motor
mountain museum mushroom musician mustard mystery necklace needle nephew nerve nickel noodle novel nuclear
nurse oasis observatory ocean office onion opera orange orchard organ orphan oven oxygen oyster package
painter palace panther paper parade parcel parent parliament parrot passport pasture patent patient peach
peanut pearl pebble pencil pendulum pepper perfume petrol pharmacy phoenix photo physics piano picnic pigeon
pillow pilot pirate planet plaster plastic platform plaza poem poison police pollen popcorn porcelain
portrait potato pottery powder prairie prayer priest printer prison problem profit propeller protein proverb
pumpkin puppet puzzle pyramid quarry quartz queen quilt rabbit radar radiator railway rainbow ranch raven
receipt recipe refugee region rehearsal reservoir restaurant revenue rhythm ribbon river rocket romance
rooster rubber ruler sailor salad salary salmon sandal satellite saucer sausage scarf scholar school
scissors scooter sculpture season secretary senate server shadow shelter sheriff shipment shoulder shower
silver singer skeleton sketch skull sleeve slogan soccer soldier sonnet soup spider spinach spiral sponge
square stadium stairs statue steam stereo stomach storage storm strawberry studio subway sugar suitcase
summer sunset surgeon swallow sweater symbol symphony syrup tablet tailor tariff taxi teacher telescope
temple tenant tennis terrace textile theatre theorem thermometer thunder ticket tiger timber tobacco tomato
tongue tornado tortoise tourist tower tractor trader tragedy treasure treaty triangle tribe trophy trumpet
tunnel turbine turtle twilight umbrella uncle uniform universe uranium valley vanilla vehicle velvet verdict
victim village vinegar violin virus visitor vitamin volcano voyage waiter walnut warrior waterfall weapon
weather wedding whale wheat whistle widow willow window winter wizard wolf wrist yacht yoghurt zebra zinc
"""

VOCABULARY = tuple(_TEXT.split())
